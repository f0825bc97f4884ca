"""The catalogue of published models: what they are, and where to download them.

Sizes are estimates (parameters times four bytes) where the host does not state them. A checksum is
listed only if its host published it or we held the bytes; for all others the cache keeps the first
one seen (hub.py). Hosts that publish under plain http are asked over https.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from elmore.errors import ModelNotFound
from elmore.text.tokenizer import Convention

__all__ = [
    "BUNDLED",
    "CATALOG",
    "INCLUDED",
    "Form",
    "Published",
    "PublishedFile",
    "Tokenization",
    "assumed_tokens",
    "bundled_model",
    "find_file",
    "find_published",
    "find_weights",
    "published_name",
]

# Name of the bundled model that is used when none is named.
BUNDLED = "english"


def bundled_model(name: str = BUNDLED) -> Path:
    """The folder of a model inside the package, one of `INCLUDED`."""
    return Path(__file__).resolve().parents[1] / "models" / name


# What the files are. `other` is not an LSTM model; it is listed to save people the search.
Form = Literal["elmore", "allennlp", "tensorflow", "manylangs", "tfhub", "other"]


class Tokenization(NamedTuple):
    """How raw text is split for a model; `note` says why that may not fit, and is empty if it does.

    See `Checkpoint.notes`.
    """

    convention: Convention
    note: str = ""


_ENGLISH_NAMES = frozenset(("en", "eng", "english"))
# Words are written without spaces between them, or (Vietnamese) with spaces inside.
_SEGMENTED = frozenset(
    ("zh", "zho", "chi", "chinese", "ja", "jpn", "japanese", "vi", "vie", "vietnamese")
)
_NOT_STATED = "nobody states how its training text was tokenized"
_LEMMAS = "it was trained on lemmas, not on words as they are written"


def assumed_tokens(form: Form, languages: Collection[str] = ()) -> Tokenization:
    """What to assume of a model that does not say how its text was tokenized.

    Args:
        form: what its files are. All ELMoForManyLangs models were trained on tokens of UDPipe.
        languages: ISO 639 codes or English names; empty if they are not known.
    """
    names = {name.lower() for name in languages}
    english = names <= _ENGLISH_NAMES
    if form != "manylangs":
        # What can be downloaded without a language is the English of the paper, as a rule.
        return Tokenization("billion-word" if english else "unicode", _NOT_STATED)
    if not names:
        return Tokenization("unicode", "it was trained on words of UDPipe in an unnamed language")
    if names & _SEGMENTED:
        return Tokenization("unicode", "it was trained on words of UDPipe, which need a dictionary")
    return Tokenization("ptb" if english else "unicode")


@dataclass(frozen=True, kw_only=True)
class PublishedFile:
    """A file of a published model.

    Attributes:
        name: file name in the cache.
        addresses: where to download it; the first is the original, the others are mirrors.
        checksum: "sha256:…" or "sha1:…", if it is known for certain.
    """

    name: str
    addresses: tuple[str, ...]
    checksum: str | None = None


@dataclass(frozen=True, kw_only=True)
class Published:
    """A published model.

    Attributes:
        name: its name in `elmore models`.
        language: ISO 639 code; "zxx" for what is not a language.
        form: what its files are.
        trained_on: the text.
        licence: as its host states it.
        files: what is downloaded; empty if users must download it by hand.
        page: where people read about it, or download it.
        parameters: size of the biLM, if known.
        dim: size of a token's vector in each layer, if known.
        megabytes: size of the download, if known or estimated.
        tokenizer: the convention of its training text, if known.
        lemmas: whether it was trained on lemmas.
    """

    name: str
    language: str
    form: Form
    trained_on: str
    licence: str = "not stated"
    files: tuple[PublishedFile, ...] = ()
    page: str
    parameters: int | None = None
    dim: int | None = None
    megabytes: int | None = None
    tokenizer: Convention | None = None
    lemmas: bool = False

    @property
    def tokens(self) -> Tokenization:
        """How raw text is split for it."""
        if self.lemmas:
            return Tokenization("unicode", _LEMMAS)
        if self.tokenizer is not None:
            return Tokenization(self.tokenizer)
        return assumed_tokens(self.form, (self.language,))

    @property
    def by_hand(self) -> bool:
        """Whether it has no address that a program may download from."""
        return not self.files


Files = tuple[PublishedFile, ...]
_ALLENNLP = "https://s3-us-west-2.amazonaws.com/allennlp/models/elmo"
# The same bucket, as later AllenNLP releases name it.
_ALLENNLP_TOO = "https://allennlp.s3.amazonaws.com/models/elmo"
_ALLENNLP_PAGE = "https://allenai.org/allennlp/software/elmo"
_NLPL = "https://vectors.nlpl.eu/repository"
_UNSTATED = "not stated (code: Apache-2.0)"
_BILLION = "1 Billion Word Benchmark"


def _pair(
    options: str, weights: str, *mirrors: str, sums: tuple[str | None, str | None] = (None, None)
) -> Files:
    """Options and HDF5 weights; mirrors are folders with options.json and weights.hdf5."""
    return tuple(
        PublishedFile(
            name=name,
            addresses=(*_everywhere(address), *(f"{mirror}/{name}" for mirror in mirrors)),
            checksum=checksum,
        )
        for name, address, checksum in zip(
            ("options.json", "weights.hdf5"), (options, weights), sums, strict=True
        )
    )


def _everywhere(address: str) -> tuple[str, ...]:
    if address.startswith(_ALLENNLP):
        return (address, _ALLENNLP_TOO + address.removeprefix(_ALLENNLP))
    return (address,)


def _archived(name: str, language: str, form: Form, address: str, **facts: Any) -> Published:
    """A model in one archive; the suffix of its address says of which kind."""
    kind = "model.zip" if address.endswith(".zip") else "model.tar.gz"
    files = (PublishedFile(name=kind, addresses=(address,)),)
    return Published(name=name, language=language, form=form, files=files, **facts)


def _english(
    name: str,
    stem: str,
    parameters: int,
    dim: int,
    trained_on: str,
    *mirrors: str,
    checksum: str | None = None,
) -> Published:
    address = f"{_ALLENNLP}/{stem}/elmo_{stem}"
    pair = f"{address}_options.json", f"{address}_weights.hdf5"
    files = _pair(*pair, *mirrors, sums=(None, checksum))
    return Published(
        name=name,
        language="en",
        form="allennlp",
        trained_on=trained_on,
        licence=_UNSTATED,
        files=files,
        page=_ALLENNLP_PAGE,
        parameters=parameters,
        dim=dim,
        megabytes=round(parameters * 4 / 1e6),
        tokenizer="billion-word",
    )


def _checkpoint(name: str, folder: str, step: int, dim: int, megabytes: int) -> Published:
    stem = f"model.ckpt-{step}"
    parts = ("options.json", f"{stem}.index", f"{stem}.data-00000-of-00001")
    words = f"{_ALLENNLP}/vocab-2016-09-10.txt"
    files = [
        PublishedFile(name=part, addresses=_everywhere(f"{_ALLENNLP}/{folder}/{part}"))
        for part in parts
    ]
    return Published(
        name=name,
        language="en",
        form="tensorflow",
        trained_on=f"{_BILLION}; with softmax",
        licence=_UNSTATED,
        files=(*files, PublishedFile(name="vocab.txt", addresses=_everywhere(words))),
        page="https://github.com/allenai/bilm-tf",
        dim=dim,
        megabytes=megabytes,
        tokenizer="billion-word",
    )


def _contributed(name: str, language: str, folder: str, weights: str, trained_on: str) -> Published:
    options = "options.json"
    if name == "pubmed":
        options = "elmo_2x4096_512_2048cnn_2xhighway_options.json"
    address = f"{_ALLENNLP}/contributed/{folder}"
    return Published(
        name=name,
        language=language,
        form="allennlp",
        trained_on=trained_on,
        files=_pair(f"{address}/{options}", f"{address}/{weights}"),
        page=_ALLENNLP_PAGE,
        dim=1024,
        megabytes=374,
    )


# ELMoForManyLangs: the number of each zip at NLPL, and its language.
_MANYLANGS = (
    "136 ar, 137 bg, 138 ca, 139 cs, 140 cu, 141 da, 142 de, 143 el, 144 en, 145 es, 146 et, "
    "147 eu, 148 fa, 149 fi, 150 fr, 151 ga, 152 gl, 153 grc, 154 he, 155 hi, 156 hr, 157 hu, "
    "158 id, 159 it, 160 ja, 161 ko, 162 la, 163 lv, 164 nl, 165 nb, 166 nn, 167 pl, 168 pt, "
    "169 ro, 170 ru, 171 sk, 172 sl, 173 sv, 174 tr, 175 ug, 176 uk, 177 ur, 178 vi, 179 zh"
)
_MANYLANGS_PAGE = "https://github.com/HIT-SCIR/ELMoForManyLangs"


def _manylangs() -> Iterator[Published]:
    for row in _MANYLANGS.split(", "):
        number, language = row.split(" ")
        script = "; traditional script" if language == "zh" else ""
        yield _archived(
            f"manylangs-{language}",
            language,
            "manylangs",
            f"{_NLPL}/11/{number}.zip",
            trained_on=f"CoNLL 2017 raw text, 20 M words{script}",
            licence="not stated (code: MIT)",
            page=_MANYLANGS_PAGE,
            dim=1024,
            megabytes=436,
        )


# The repository of NLPL: number, language, text.
_NLPL_ROWS = (
    ("11/195", "ru", "RNC and Wikipedia 2018, tokens", None),
    ("11/196", "ru", "RNC and Wikipedia 2018, lemmas", None),
    ("20/199", "ru", "Taiga, lemmas", None),
    ("20/212", "ru", "Araneum, lemmas; with checkpoint", 1500),
    ("20/209", "en", "SemEval-2020 task 1", None),
    ("20/201", "de", "SemEval-2020 task 1", None),
    ("20/202", "sv", "SemEval-2020 task 1", None),
    ("20/203", "la", "SemEval-2020 task 1", None),
    ("20/210", "no", "Wikipedia 2020, lemmas", None),
    ("20/211", "no", "Wikipedia 2020, tokens", None),
    ("20/217", "no", "Wikipedia and Norsk Aviskorpus, 30k words (NorELMo30)", None),
    ("20/218", "no", "Wikipedia and Norsk Aviskorpus, 100k words (NorELMo100)", None),
    ("20/219", "en", "not stated", None),
)


def _nlpl() -> Iterator[Published]:
    for number, language, trained_on, megabytes in _NLPL_ROWS:
        yield _archived(
            f"nlpl-{number.partition('/')[2]}",
            language,
            "allennlp",
            f"{_NLPL}/{number}.zip",
            trained_on=trained_on,
            licence="see meta.json in the zip",
            page=f"{_NLPL}/",
            megabytes=megabytes,
            # NLPL prepares its corpora with UDPipe.
            tokenizer="unicode" if trained_on.endswith("tokens") else None,
            lemmas="lemmas" in trained_on,
        )


_PAVLOV = "https://files.deeppavlov.ai/deeppavlov_data"


def _russian() -> Iterator[Published]:
    for domain, stem, text in (
        ("wiki", "wiki_600k_steps", "Wikipedia, 386 M tokens"),
        ("news", "news_wmt11-16_1.5M_steps", "WMT news 2011-2016, 946 M tokens"),
        ("twitter", "twitter_2013-01_2018-04_600k_steps", "Twitter 2013-2018, 810 M tokens"),
    ):
        facts: dict[str, Any] = {
            "licence": "Apache-2.0",
            "page": "https://github.com/deeppavlov/DeepPavlov",
            "dim": 1024,
        }
        name, address = f"ru-{domain}", f"{_PAVLOV}/elmo_ru-{stem}.tar.gz"
        yield _archived(name, "ru", "tfhub", address, trained_on=text, **facts)
        address = f"{_PAVLOV}/elmo-lm-ready4fine-tuning-{name}"
        text = f"{text}; with softmax"
        for kind in ("", "-simple"):
            yield _archived(
                f"{name}-checkpoint{kind}",
                "ru",
                "tensorflow",
                f"{address}{kind}.tar.gz",
                trained_on=text,
                **facts,
            )


def _tfhub() -> Iterator[Published]:
    for version in (1, 2, 3):
        address = f"https://tfhub.dev/google/elmo/{version}"
        yield _archived(
            f"tfhub-elmo-{version}",
            "en",
            "tfhub",
            f"{address}?tf-hub-format=compressed",
            trained_on=_BILLION,
            licence="Apache-2.0",
            page=address,
            dim=1024,
            megabytes=374,
            tokenizer="billion-word",
        )


def _by_hand(name: str, language: str, trained_on: str, page: str, form: Form) -> Published:
    return Published(name=name, language=language, form=form, trained_on=trained_on, page=page)


_GERMAN = "https://github.com/t-systems-on-site-services-gmbh/german-elmo-model"
_PLUR = "https://schweter.eu/cloud"
_CROSS = "https://github.com/TalSchuster/CrossLingualContextualEmb"
_CLARIN = "https://www.clarin.si/repository/xmlui/handle/11356/1277"
_OSCAR = "https://oscar-project.org"
_TWO_LAYERS = "https://public.ukp.informatik.tu-darmstadt.de/reimers/2019_elmo_weights/"
# "A Passage to India" (Saurav et al. 2020); the paper says where its models are.
_INDIC = "https://aclanthology.org/2020.sltu-1.49/"
_INDIC_LANGUAGES = "as bn gu hi kn kok ml mr ne or pa sa ta te"
_SEQVEC = "https://rostlab.org/~deepppi/embedding_repo/embedding_models/seqvec"

# Inside the package. The page of each is its model card.
INCLUDED: dict[str, Published] = {
    model.name: model
    for model in (
        Published(
            name=BUNDLED,
            language="en",
            form="elmore",
            trained_on="open text of seven domains, 86.9 M tokens",
            licence="Apache-2.0",
            page="docs/english.md",
            dim=384,
            megabytes=31,
        ),
        Published(
            name="korean",
            language="ko",
            form="elmore",
            trained_on="a tenth of Korean Wikipedia, 13.5 M tokens",
            licence="Apache-2.0",
            page="docs/korean.md",
            dim=256,
            megabytes=19,
        ),
    )
}

CATALOG: tuple[Published, ...] = (
    # Peters et al. 2018. The one checksum comes from a Git LFS pointer to this file.
    _english(
        "small",
        "2x1024_128_2048cnn_1xhighway",
        13_593_296,
        256,
        _BILLION,
        checksum="sha256:747ba97abce8a5f446558369e10bb0f7931437a46867476fdd156f5d7f576229",
    ),
    _english("medium", "2x2048_256_2048cnn_1xhighway", 28_027_728, 512, _BILLION),
    _english(
        "original",
        "2x4096_512_2048cnn_2xhighway",
        93_600_848,
        1024,
        _BILLION,
        "https://huggingface.co/lysandre/elmo-2x4096_512_2048cnn_2xhighway/resolve/main",
        "https://huggingface.co/lysandre/elmo/resolve/main",
    ),
    _english(
        "original-5.5b",
        "2x4096_512_2048cnn_2xhighway_5.5B",
        93_600_848,
        1024,
        "Wikipedia and WMT news, 5.5 G tokens",
    ),
    # Weights, softmax and Adagrad's sums: (biLM + 793,471 x (P + 1)) x 8 bytes.
    _checkpoint(
        "original-checkpoint", "2x4096_512_2048cnn_2xhighway_tf_checkpoint", 935588, 1024, 4005
    ),
    _checkpoint(
        "medium-checkpoint", "2x2048_256_2048cnn_1xhighway/tf_checkpoint", 1501260, 512, 1856
    ),
    _contributed(
        "pubmed",
        "en",
        "pubmed",
        "elmo_2x4096_512_2048cnn_2xhighway_weights_PubMed_only.hdf5",
        "PubMed",
    ),
    _contributed("pt-wikipedia", "pt", "pt/wikipedia", "elmo_pt_weights.hdf5", "Wikipedia"),
    _contributed("pt-brwac", "pt", "pt/brwac", "elmo_pt_weights_dgx1.hdf5", "brWaC"),
    Published(
        name="ja",
        language="ja",
        form="allennlp",
        trained_on="see ACL 2019, P19-1458 (ExaWizards)",
        files=_pair(
            "https://exawizardsallenlp.blob.core.windows.net/data/options.json",
            "https://exawizardsallenlp.blob.core.windows.net/data/weights.hdf5",
        ),
        page=_ALLENNLP_PAGE,
    ),
    Published(
        name="de-wiki",
        language="de",
        form="allennlp",
        trained_on="Wikipedia, 963 M tokens",
        licence="BSD-2-Clause",
        files=_pair(
            f"{_GERMAN}/releases/download/files_1/options.json",
            f"{_GERMAN}/releases/download/files_1/weights.hdf5",
            sums=(
                "sha1:04afb8bc77acf5e65633ced2efc1e91d05332e89",
                "sha1:9084adab3eefaed4f07da7331217fcb873417add",
            ),
        ),
        page=_GERMAN,
    ),
    *(
        Published(
            name=language,
            language=language,
            form="allennlp",
            trained_on=f"{tokens} tokens (plur)",
            files=_pair(
                f"{_PLUR}/{language}-elmo/options.json", f"{_PLUR}/{language}-elmo/weights.hdf5"
            ),
            page="https://github.com/stefan-it/plur",
        )
        for language, tokens in (("eu", "72.7 M"), ("ta", "21.6 M"))
    ),
    _archived(
        "frelmo",
        "fr",
        "allennlp",
        "https://traces1.inria.fr/oscar/files/models/cc/fr.zip",
        trained_on="OSCAR",
        page=_OSCAR,
    ),
    Published(
        name="seqvec",
        language="zxx",
        form="allennlp",
        trained_on="UniRef50: proteins, one token per amino acid",
        files=_pair(
            f"{_SEQVEC}/options.json",
            f"{_SEQVEC}/weights.hdf5",
            "https://data.bioembeddings.com/public/embeddings/embedding_models/seqvec",
        ),
        page="https://github.com/rostlab/SeqVec",
        dim=1024,
        megabytes=374,
    ),
    *_manylangs(),
    *_nlpl(),
    *_russian(),
    *_tfhub(),
    # No address that a program may download from: a form, a shared drive, a host without https.
    _by_hand("manylangs-zhs", "zh", "Gigaword, simplified script", _MANYLANGS_PAGE, "manylangs"),
    _by_hand(
        "bioelmo", "en", "PubMed, 2.46 G tokens", "https://github.com/Andy-jqa/bioelmo", "allennlp"
    ),
    *(
        _by_hand(f"aligned-{language}", language, "Wikipedia; with alignments", _CROSS, "allennlp")
        for language in ("en", "es", "fr", "it", "pt", "sv", "de")
    ),
    *(
        _by_hand(f"clarin-{language}", language, "Ulčar and Robnik-Šikonja", _CLARIN, "allennlp")
        for language in ("hr", "et", "fi", "lv", "lt", "sl", "sv")
    ),
    *(
        _by_hand(f"oscar-{language}", language, "OSCAR and Wikipedia", _OSCAR, "allennlp")
        for language in ("bg", "ca", "da", "fi", "id")
    ),
    *(
        _by_hand(f"indic-{language}", language, "Saurav et al. 2020", _INDIC, "allennlp")
        for language in _INDIC_LANGUAGES.split()
    ),
    *(
        _by_hand(f"{name}-2layer", "en", f"{text}; first LSTM layer alone", _TWO_LAYERS, "allennlp")
        for name, text in (
            ("original", _BILLION),
            ("original-5.5b", "Wikipedia and WMT news, 5.5 G tokens"),
        )
    ),
    _by_hand("de-wiki-checkpoint", "de", "Wikipedia; with softmax", _GERMAN, "tensorflow"),
    _by_hand(
        "seqvec-checkpoint",
        "zxx",
        "UniRef50: proteins; with softmax",
        "https://github.com/rostlab/SeqVec",
        "tensorflow",
    ),
    _by_hand("transformer-elmo", "en", _BILLION, _ALLENNLP_PAGE, "other"),
)

_BY_NAME = {model.name: model for model in CATALOG}
_BY_ADDRESS = {
    address: (model, file)
    for model in CATALOG
    for file in model.files
    for address in file.addresses
}
# Only the files of the English models have names that nobody else uses.
_BY_WEIGHTS = {
    name: model
    for address, (model, _) in _BY_ADDRESS.items()
    if (name := address.rpartition("/")[2]).startswith("elmo_2x") and name.endswith(".hdf5")
}


def find_published(name: str) -> Published:
    """The model of that name.

    Raises:
        ModelNotFound: with the nearest names.
    """
    if name in _BY_NAME:
        return _BY_NAME[name]
    near = difflib.get_close_matches(name, [*INCLUDED, *_BY_NAME], 3)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    raise ModelNotFound(
        f"no file, folder or known model is called {name!r}; {hint}`elmore models` lists the names"
    )


def find_file(address: str) -> tuple[Published, PublishedFile] | None:
    """The published model and its file at an address, if it is a known one."""
    return _BY_ADDRESS.get(address)


def find_weights(name: str) -> Published | None:
    """The published model whose weights have this file name, if no other model's have."""
    return _BY_WEIGHTS.get(name)


def published_name(name: str) -> Published | None:
    """The model of that name, if there is one."""
    return _BY_NAME.get(name)
