"""Fuzzes one parser, guided by the lines that inputs reach: a program that `campaign_fuzz` runs.

`python -m tests.hostile.fuzz PARSER CORPUS -runs=N ...`: other options are those of libFuzzer.
"""

import faulthandler
import sys
import warnings
from pathlib import Path


def main() -> None:
    """Fuzz; the process ends with the last run, or with the first bug."""
    try:
        import atheris
    except ImportError:
        raise SystemExit("this needs atheris, which `make campaign-fuzz` installs") from None
    name, corpus = sys.argv[1], Path(sys.argv[2])
    faulthandler.enable()
    warnings.simplefilter("ignore")
    with atheris.instrument_imports(include=["fieldslab"]):
        from tests.hostile.parsers import PARSERS, try_parser

    example = PARSERS[name][1]()
    try_parser(name, example)  # modules that it loads late
    corpus.mkdir(parents=True, exist_ok=True)
    (corpus / "example").write_bytes(example)
    atheris.Setup([sys.argv[0], *sys.argv[3:], str(corpus)], lambda data: try_parser(name, data))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
