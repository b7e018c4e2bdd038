// SPDX-License-Identifier: MIT
// A frame: "CHF1", length of the header, JSON header, floats (src/viewer/frame.h).
export interface Frame {
  header: Record<string, unknown>;
  array(name: string): Float32Array | undefined;
}

interface Place {
  shape: number[];
  offset: number;
}

export function parseFrame(bytes: ArrayBuffer): Frame {
  const view = new DataView(bytes);
  if (bytes.byteLength < 8 || view.getUint32(0, false) !== 0x43484631) throw new Error("the answer is not a frame");
  const size = view.getUint32(4, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(bytes, 8, size))) as Record<string, unknown>;
  const places = header["arrays"] as Record<string, Place>;
  return {
    header,
    array(name) {
      const place = places[name];
      if (place === undefined) return undefined;
      const count = place.shape.reduce((product, extent) => product * extent, 1);
      return new Float32Array(bytes, 8 + size + 4 * place.offset, count);
    },
  };
}
