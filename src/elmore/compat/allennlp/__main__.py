"""`python -m elmore.compat.allennlp elmo INPUT OUTPUT --all`: the old `allennlp elmo` command."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from elmore.base.io import open_checked, read_lines
from elmore.base.messages import shown
from elmore.errors import ConfigError, ElmoreError
from elmore.limits import LIMITS
from elmore.text.reading import check_inputs


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m elmore.compat.allennlp",
        description="Write the ELMo vectors of a file, one sentence per line, to HDF5.",
    )
    parser.add_argument("verb", metavar="elmo", choices=["elmo"])
    parser.add_argument(
        "input_file", metavar="INPUT", help="UTF-8, tokens separated by white space"
    )
    parser.add_argument("output_file", metavar="OUTPUT", help="HDF5 file to make")
    kinds = parser.add_mutually_exclusive_group(required=True)
    for kind, what in {"all": "all layers", "top": "the top one", "average": "their mean"}.items():
        kinds.add_argument(f"--{kind}", action="store_const", const=kind, dest="kind", help=what)
    parser.add_argument("--vocab-path", help="not used, as ever")
    parser.add_argument("--options-file", help="options.json (default: the original model)")
    parser.add_argument("--weight-file", help="HDF5 weights (default: the original model)")
    parser.add_argument("--batch-size", type=int, default=64, help="sentences in a batch")
    parser.add_argument("--file-friendly-logging", action="store_true", help="not used")
    parser.add_argument("--cuda-device", type=int, default=-1, help="-1 for the CPU")
    parser.add_argument("--forget-sentences", action="store_true", help="no sentence_to_index")
    parser.add_argument(
        "--use-sentence-keys", action="store_true", help="name datasets after their sentences"
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; exit codes as those of `elmore`."""
    args = _parser().parse_args(arguments)
    # The library never configures logging; a command may.
    logger, handler = logging.getLogger("elmore"), logging.StreamHandler()
    logger.addHandler(handler)
    try:
        _embed(args)
    except ElmoreError as error:
        lines = [f"elmore: error: {shown(error, 380)}", *getattr(error, "__notes__", ())]
        sys.stderr.write("\n".join(lines) + "\n")
        return 2 if isinstance(error, ConfigError) else 1
    finally:
        logger.removeHandler(handler)
    return 0


def _embed(args: argparse.Namespace) -> None:
    if args.batch_size < 1:
        raise ConfigError(f"--batch-size {args.batch_size} holds no sentence; use 1 or more")
    check_inputs([args.input_file], Path(args.output_file))
    with open_checked(Path(args.input_file), what="input") as stream:
        numbered = read_lines(stream, what=args.input_file, max_line=LIMITS.text_line_bytes)
        lines = [line for _, line in numbered]
    # Imported late, so that `--help` and wrong flags answer at once.
    from elmore.compat.allennlp import embedder

    model = embedder.ElmoEmbedder(
        args.options_file or embedder.DEFAULT_OPTIONS_FILE,
        args.weight_file or embedder.DEFAULT_WEIGHT_FILE,
        args.cuda_device,
    )
    model.embed_file(
        lines,
        args.output_file,
        args.kind,
        args.batch_size,
        args.forget_sentences,
        args.use_sentence_keys,
    )


if __name__ == "__main__":
    sys.exit(main())
