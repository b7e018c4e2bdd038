# SPDX-License-Identifier: MIT
"""documents_test.py PAGE...: runs every block of Python on a page, in order, in one namespace, so that what a page shows works."""
import pathlib
import re
import sys
import tempfile
import os

failed = 0
for page in sys.argv[1:]:
    text = pathlib.Path(page).read_text(encoding="utf-8")
    namespace, blocks = {}, 0
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for match in re.finditer(r"^```python\n(.*?)^```", text, re.M | re.S):
            line = text[:match.start(1)].count("\n")
            code = compile("\n" * line + match[1], page, "exec")
            try:
                exec(code, namespace)
                blocks += 1
            except Exception as error:
                where = error.__traceback__
                while where.tb_next is not None and where.tb_frame.f_code.co_filename != page:
                    where = where.tb_next
                print(f"{page}:{where.tb_lineno}: {type(error).__name__}: {error}")
                failed += 1
        os.chdir("/")
    print(f"{page}: {blocks} blocks run")
    if blocks == 0:
        print(f"{page}: no block of Python was found")
        failed += 1
sys.exit(1 if failed else 0)
