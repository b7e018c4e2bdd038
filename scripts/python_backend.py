# SPDX-License-Identifier: MIT
"""What pip calls (PEP 517): builds the Python package with the project's own CMake and packs it as a wheel.

    pip install .
    pip wheel . --config-settings build-dir=build/release      uses a build folder that is there

The wheel has the models inside. Equal sources give equal bytes: sorted names, one date (SOURCE_DATE_EPOCH).
"""
import base64
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


def version():
    found = re.search(r"project\(clearhead VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())
    suffix = re.search(r"set\(CLEARHEAD_VERSION_SUFFIX *(-dev)?", (ROOT / "CMakeLists.txt").read_text())
    return found[1] + (".dev0" if suffix[1] else "")


def tag():
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    return f"cp{sys.version_info.major}{sys.version_info.minor}-cp{sys.version_info.major}{sys.version_info.minor}-{platform}"


def packages_of(extension):
    """The Debian packages with the libraries that the extension opens; none where there is no dpkg."""
    if shutil.which("dpkg-query") is None:
        return []
    found = set()
    dynamic = subprocess.run(["objdump", "-p", extension], check=True, stdout=subprocess.PIPE, text=True).stdout
    needed = set(re.findall(r"NEEDED +(\S+)", dynamic))
    for name, path in re.findall(r"(\S+) => (/\S+)", subprocess.run(["ldd", extension], check=True, stdout=subprocess.PIPE, text=True).stdout):
        # /lib is /usr/lib by now; a package may name either, and so may the loader.
        owners = [subprocess.run(["dpkg-query", "-S", place], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
                  for place in (path, path.removeprefix("/usr"), "/usr" + path)]
        owner = next((answer for answer in owners if answer), None)
        if name in needed and owner:
            found.add(owner.split(":")[0])
    return sorted(found)


def metadata(packages):
    return (f"Metadata-Version: 2.1\nName: clearhead\nVersion: {version()}\n"
            "Summary: Sparse attention for language models, and what every head does\nLicense: MIT\n"
            "Requires-Python: >=3.9\nRequires-Dist: numpy>=1.22\n"
            + "".join(f"Requires-External: {package}\n" for package in packages)
            + "Description-Content-Type: text/markdown\n\n" + (ROOT / "README.md").read_text(encoding="utf-8"))


def run(*words):
    done = subprocess.run([str(word) for word in words], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        sys.stderr.write(done.stdout)
        raise SystemExit(f"python_backend: '{' '.join(str(word) for word in words)}' failed; its words are above "
                         "(scripts/install-deps build python installs what a build needs)")


def built(settings):
    """A build folder with the module in it."""
    folder = pathlib.Path((settings or {}).get("build-dir", ROOT / "build" / "python"))
    folder = folder if folder.is_absolute() else ROOT / folder
    if not (folder / "CMakeCache.txt").exists():
        run("cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DCLEARHEAD_TESTS=OFF",
            "-DCLEARHEAD_BENCH=OFF", "-DCLEARHEAD_PYTHON=ON", f"-DPython_EXECUTABLE={sys.executable}")
    run("cmake", "--build", folder, "--target", "clearhead_python")
    return folder


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    name = f"clearhead-{version()}-{tag()}.whl"
    info = f"clearhead-{version()}.dist-info"
    moment = time.gmtime(max(int(os.environ.get("SOURCE_DATE_EPOCH", "315532800")), 315532800))[:6]
    with tempfile.TemporaryDirectory() as staging:
        run("cmake", "--install", built(config_settings), "--component", "python", "--prefix", staging, "--strip")
        files = {str(path.relative_to(staging)): path.read_bytes()
                 for path in pathlib.Path(staging).rglob("*") if path.is_file()}
        packages = packages_of(next(pathlib.Path(staging).rglob("_clearhead*.so")))
    files[f"{info}/METADATA"] = metadata(packages).encode()
    files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: clearhead\nRoot-Is-Purelib: false\nTag: {tag()}\n".encode()
    files[f"{info}/LICENSE"] = subprocess.run([ROOT / "scripts" / "notices"], check=True, stdout=subprocess.PIPE).stdout
    record = ""
    for path in sorted(files):
        digest = base64.urlsafe_b64encode(hashlib.sha256(files[path]).digest()).rstrip(b"=").decode()
        record += f"{path},sha256={digest},{len(files[path])}\n"
    files[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
    with zipfile.ZipFile(pathlib.Path(wheel_directory) / name, "w", zipfile.ZIP_DEFLATED) as wheel:
        for path in sorted(files):
            entry = zipfile.ZipInfo(path, moment)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o755 if path.endswith(".so") else 0o644) << 16
            wheel.writestr(entry, files[path])
    return name
