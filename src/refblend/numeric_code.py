"""The code that determines numbers: one hash per purpose, for run identity, Snakemake and DVC.

A purpose (``train``, ``judge``, ``measure_judges``, …) names packages or modules. Everything that
they import counts, directly or indirectly, as read from the source without importing anything;
imports inside functions count, those for type checkers do not. A package's ``__init__`` counts if a
name is imported from it. A module is hashed as its syntax tree without docstrings and comments, so
rewording or reformatting changes nothing, and neither does a module that the purpose never imports.

``python -m refblend.numeric_code FILE`` writes the hashes of all purposes as JSON.
"""

import ast
import functools
import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from refblend.errors import ConfigError
from refblend.files import write_json

PACKAGE = Path(__file__).resolve().parent

PURPOSES: dict[str, tuple[str, ...]] = {
    "data": ("embedded.prepare", "embedded.recipe", "embedded.sums"),
    "gsm8k": ("data.gsm8k", "data.splits"),
    "tokenizer": ("embedded.tokenizer_texts",),
    "actor": ("embedded.actor",),
    "judge_pairs": ("embedded.judge_data",),
    "judge": ("embedded.judge_training",),
    "train": ("ppo", "rewards", "rollout", "scoring", "trainer", "workers"),
    "measure_actor": ("embedded.actor_quality",),
    "measure_judges": ("scoring.measure",),
    "test_accuracy": ("study.runs.evaluate",),
    "reports": ("study",),
}
"""Entry modules and packages of each purpose, as dotted names below ``refblend``. A package stands
for its own modules, imported or not; those of its subpackages count when something imports them.
``reports`` stands for the whole of ``study``."""

WITHOUT_EFFECT = (
    "",  # the package's public names
    "cli",
    "config.loading",
    "documents",
    "energy",
    "errors",
    "files",
    "identity",
    "lifecycle",
    "numeric_code",
    "progress",
    "provenance",
    "trainer.console",
    "trainer.launch",
    "trainer.preflight",
    "trainer.profiling",
    "trainer.run_directory",
    "trainer.summary",
    "trainer.trackers",
    "workers.cluster",
    "workers.node_files",
    "workers.nodes",
    "workers.placement",
    "workers.pools",
    "workers.run_files",
)
"""Modules, and packages with all that they hold, that read, write, report or look after processes:
they change no number, and what only they import does not count either."""
SAME_NUMBERS = {
    # workers.chunked_head: its results are made first; on GPUs the softmax takes whole chunks
    "bf1fd73d336467df97e0674ebde98ba1e791740649159165e87d767fe6a5de50": (
        "1efcf5d4dcf37a5423da0a454059ea1e5a68076e6361cedc745632db9724e6f5"
    ),
    # workers.networks: larger chunks on GPUs, on which no run of the earlier form was made; models
    # that scale or cap their logits are refused
    "a0f4f06973c290b6297d01b1925bcb580aa090aff5d30da1bac2e428c5e0cf65": (
        "b3652bb6aed912916c5959150f7edf7ce916026f5826b5fe1004b1aae1dc2571"
    ),
    # workers.ranks: a run's network is freed before the next one's is loaded
    "68364ddcb96b18a0d7ec2c46ca82a5358c9d5753cbd3bb7b0ddd094088fdc76c": (
        "375b4fb49595d2ead59b108aad99c24400cdc058d1c74ea978b4b4438aa3327d"
    ),
    # runtime: freed memory can be returned
    "b1c26e8564d007bc9505d6bcd4c900e168257cff351ad6cd83e872d3841c7bc3": (
        "4b68ec73086909905bf4411792830c005990f6a2a8bc90197399e7a8ea59df27"
    ),
    # workers.worker_set: engines that share a GPU start one after another; the death of the actor
    # during a push is its own; what was saved and will not be fetched is removed
    "25265d59ede2a8f26599782a1e5f216dab3a4f7a16bb85dd56756240d5bce47f": (
        "d42bf2d1bbc3a6c86d965aa386f28f820cf2d0293be7db0c510c7ff6c231712d"
    ),
    # rollout.factory: a seed of 0 is a seed, which no run had given
    "dc286e6795ffe89fa9ec730dc36d2543a442b16c3b0690607638dc576a053ac6": (
        "4b94a1fbc69e290cdd2e2836d69de1c3ebfcf3e5e3653719a594600e43aadedc"
    ),
    # trainer.step_metrics: throughput counts the GPUs of all engines; NVML may fail
    "68e58d9d62efd18e2985aab98ab7c8f5d33a9991028c1c15bca3123d57f26e17": (
        "c8d70abe607b3627441fb870822312eff646414c6cecb6dd83266f40bbac4eff"
    ),
    # scoring.endpoint: a judge behind HTTP answers in a notebook, too; of one that hangs, a
    # batch asks one round
    "1ee0bd99d722bfc326ab8a21977216462192653505faee9cda48e8305281bbba": (
        "f3ebf84e921ae9b2efe27adf231d5a3fb1ad6e4bbff04f4e7fb1ef4462bae818"
    ),
    # rewards.math: the alarm is set again after an error, too, and a request to stop waits
    "3132459e07541b9e96f34e409c7db27c92e4a9bc12c2e7cddf723613139b2380": (
        "1877eeed3ba8686d8bc461b46dd5a2326981d5240295d9cf9cad29c3dbfe156f"
    ),
    # trainer.recovery: of equal steps the checkpoint counts that the user named
    "a3628b6310c33bbd0f1d55cd56fd63c1c845cbf9b9bd47da2147f2b1da291cf0": (
        "3976610386429e728b9c8a4a8d5d8a4e652702a77bd973e4f51d6d34f6e1bd87"
    ),
    # rollout.model_dir: lengths that only rescaled positions reach are allowed
    "1813269fecbd9804d1a7e494b2ed9126e0295e3ecff8ce27af4e4eb5d2b61a18": (
        "f8e85f66ae0afef9dee2d7d20a58a9b97addc26cac63ee6c22e21eeeabc2ab62"
    ),
    # scoring.reward_model: without a token for padding one by one, which no run had
    "be53f0e42184268bf8f1716ea7395a45ec5f2bb47a27983ca57a489ab7fdce6b": (
        "933f2ef302e9dff402637f3bc523a16ba8afab9ffaa1008471648b526026cdd9"
    ),
    # data.reasoning_gym: its server ends with its input; seeds other than 1 lie further apart;
    # errors of the verifier name the answer
    "271efefa31170846b295dd3fd04c4f7c5d3a245bcc822b103a038947aa617f9d": (
        "26b31f60235b052694f1fd09fc0331b2fc26c9676c42c0d73ec9f5235dc93980"
    ),
    # data.reasoning_gym_server: signals are left to the trainer; an answer that takes the verifier
    # too long is wrong, which no run had
    "ae23b1090b96145d7d46c0c780620071ef33e66627782a4f40e61e127ff52fa5": (
        "28f92fc68eadb7bb86da2fca5580b34021ff62b0da754e704d24689136b91104"
    ),
    # data.tokenizer: texts without a template have no special tokens either, which no run had
    "69f66d75b34c33e8ff815e13b245837cd5e11d601a7629ed9a8eb2fccc36449d": (
        "0cf86039b887fa2f3737d25dafd42d5bade516dacc6b6effbcadfede61e0da98"
    ),
    # config.actor_rollout_ref: a decay rate of 1 and temperatures below 0.01 are refused
    "a91669d92dfec53b15b34cbdad69e5164230343f587d85b36bf430b63e6ca90d": (
        "83704e6d09920f3ba0dd05c1acb3e72b7680f5dbef6be02fffe04547a231d0b1"
    ),
    # config.base: a decay rate of 1 is refused
    "d25de5cb2f9ff5f9a396a267773f6a4a05e48b9deade46439ab3cfc4bd7a16b1": (
        "f4322811456f85f2c38528c44f635e96f411ae0724379e90bba6a9de454767d5"
    ),
    # config.trainer: a key for what the drift guard compares with
    "854c7d7e0959cbe98c6463fc6df9531119daaac3b9d383c1c1643a58a4aa1fde": (
        "d337059f29800b032aadc29323e19f073ba99e697980d7f94f43b32198fe18bc"
    ),
    # trainer.guards: the guard can compare with the best validation
    "bc9b9f306329f65ff8e534b83e4d0dca181c339f5605c5e491947a86967971b9": (
        "df2049c68e0cd3e6cd78b16b4ea886bb1a2d870abd5309c2204ebf1dd308ced9"
    ),
    # rewards.rule: errors name the row
    "8367ba1334475e727fc9877cba249069b1dfe6e5ec5202e458d27188255b5b87": (
        "4fd8c74bac91adad505446050c99b8ef7af86ff6c219678ae78e0d7710e75fef"
    ),
    # trainer.experience: as rewards.rule; a batch of nothing but end tokens is refused, which
    # no run had
    "ffc2f23c37e959a0ca42b5c83511e8307bc0a6d218bef31ddebe7b05334682b2": (
        "5148dcaa5e35d8898fdc54fd4aa13f8c7ca0b76a01ccc501d2c509a106284e48"
    ),
    # trainer.validation: as rewards.rule
    "59c86d814d0c358baa6b97eb7f3dde79473bc1526732b7c7d7fff0f040350ece": (
        "0c89d1c5680d5270a8a0bdb303a8aa3bfdf9c4df12eae07446c5bd9166b3478f"
    ),
    # study.runs.evaluate: as rewards.rule
    "b452ddb9ed5b250e03f1ee865c96662d9f782036fe014ae3d6fd617a852294b4": (
        "83767144c02a6dc9d91a102f1d263ca0468f2cd3e90e62a7f9a3469957d7e0c0"
    ),
    # workers.engine_workers: results that no judge may give are refused
    "799734931bbe275d09654d963574a382eb383309c3750ab9eafec591d6b8ac34": (
        "ce68eec4d1bf23a21cfb6e7d37a32bb4f3089e417ac183a493f7f7ec619bbf04"
    ),
    # scoring.generative: a judge without room for a sample frees its engine
    "9d8b56a14eca7718415ceb4b1d76522dca90a49d8978ff949559b620653cd029": (
        "93a204d0f4248092e076eaaa4df1348e081dafa296a815a0650a77c8e8b6eece"
    ),
    # trainer.ray_trainer: responses are written before the validation, which may end the run
    "7085af8dda6b13f045159ca4b91152bc7b59d607a8bcf66e78363ed49b591738": (
        "fd6c160793be5e6bbffa3691216853f57631e846969f414f08032a4f3611e530"
    ),
    # embedded.architecture: a pretrained recipe's fingerprint has its data, too
    "aa304c5b6036661daddfa28b7357a6ce76409c5882bef5ebf4e50b78e74c7cfe": (
        "c96111a4d326993aabb0c6d2a8a8b1d5661a9fa0d84188d5907f6a746f45e076"
    ),
    # config.root: more is refused
    "edc7a390bbb4d23fc835323db8474f0e9187963636656cb2d5fac384786b21a2": (
        "8b26d4c129a2d7b4dd4f01b97348c62ffa4a2b885f222ed2ddf585091b32f7cf"
    ),
    # data.schema: an index may be a text; an assistant's last message is refused
    "1b19aa6810ad6ffb4930c6a4db34220c02e1be7f862e3aca9499e7d46d5ddef9": (
        "cb55983245669468738c049ffe1355b90c4aac4f0de3e0df269918c18183424c"
    ),
    # lookup: errors of a user's module are named
    "1adb70e2ace6e1b0406399db7e64232e460a49863c4c338662faa3d16f8b9e95": (
        "35ec72aaa711aabf4bcfbeb5d7a4f5e49b8a74e61f032fc161c869f36fcb7dff"
    ),
    # scoring.judge: keys of training are refused where only a judge runs
    "e4d86738f62d06497b5b3e78d4ef43546e777babbc6dd5e0585048c7741a0774": (
        "e089f57243f590afa5fec124dcc243be2dd2f73c59f79ad5c99e954162122970"
    ),
    # scoring.measure.corpus: rows count from 0 in a message
    "aed558b5c5a317829e698244894bdca74ba3669dedae3088b61fce28112bc738": (
        "107437784d0a46a186094c18dd300ab24f0799bdfeebfaff6383728e95e1c46d"
    ),
    # study.runs.incidents: resumed runs are counted
    "99babf954350b8482a745eec4afaac651ebef265c801b0177650633ffefb9d93": (
        "efff9d2e2f140e5dc4b8ae73a36f9bf0acca44e98cd646dff6e3f0a28564570c"
    ),
    # trainer.datasets: the parts of the data by their keys
    "8f241817d911406d6070c8d90206b1a059337c4e6c40946ba946acd79fbe437f": (
        "b61406abc1bb749ef4403ab5ac626976c2ed3ee77fc84839b9a3e6dadbcc0f7d"
    ),
    # trainer.saving: responses of later steps go when a run goes back
    "1995ebafe53a24983d7747bf48cb1c29ac5ab2115438e0c29604e91781e3eb60": (
        "bd493f7c18d22e759335e3aaca676a30e66761f68b77e3eec52b184ba4136752"
    ),
    # workers.distributed: generation settings are saved as they were loaded
    "266bf8bd36e26d02a28a955023dd8311d88b71deeea11ca8dda68101fe811e23": (
        "b8b667c81386982fda738cc4226a3f49162fc541661dcc66051183bba3207419"
    ),
    # workers.engines: workers measure their own calls
    "bb1288c5c88504d85f53087d272e6e235fce62b2b521eda8d3fefa0e4c24faf9": (
        "4b0125edda079d26e60872d08a2f9ea3d20c719bcbfc30a57bdc1458dddb598f"
    ),
    # workers.fsdp_workers: the actor's schedule begins after critic_warmup, which no run of
    # ours had
    "b57aa0064237f8f3424f85a85f68a6fd379ca71b134e2cbba900fc1f031d1580": (
        "bf02c77194c75d9c53c6d46a74129dad6bf236a794a1b7ecfbc1e514adb7fd82"
    ),
    # workers.groups: workers measure their own calls
    "45cd2335440d58c7a197e3ccb355122cb72e88712c2661962730002855351026": (
        "9c0357350427caddde2d1a19ab0312bb334328f8c47ca5e7c506b79e921cc0e6"
    ),
    # workers.types: names of counted metrics
    "b109e534777a6435fd6dbb744b3fbd2bdbb50ca3e04f16f58400e0c96abbe278": (
        "82bc6d7489bb5af6ded5abe701739c1bc5fb0346bd70b6fb40d2c3d0bdd805f7"
    ),
}
"""Digest of a module → that of an earlier form which it counts as, so that runs of that form go on.
Only where every number on the CPU is the same to the last digit: a test shows it, or no operation
there has changed."""


class Source:
    """The source of the package, each file read and hashed at most once."""

    def __init__(self, root: Path = PACKAGE) -> None:
        self.root = Path(root)
        self._trees: dict[str, ast.Module] = {}
        self._imported: dict[str, set[str]] = {}
        self._digests: dict[str, str] = {}

    def modules(self, *names: str) -> list[str]:
        """Sorted names of the modules behind keys of :data:`PURPOSES` or packages; ConfigError."""
        found: set[str] = set()
        waiting = [module for name in names for module in self._entry_modules(name)]
        while waiting:
            module = waiting.pop()
            if module not in found and not without_effect(module):
                found.add(module)
                waiting += self._imports(module)
        return sorted(found)

    def hash(self, *names: str) -> str:
        """SHA-256 over the modules that count for these purposes or entries."""
        digest = hashlib.sha256()
        for module in self.modules(*names):
            if module not in self._digests:
                own = self.digest(module)
                self._digests[module] = SAME_NUMBERS.get(own, own)
            digest.update(f"{module}\0{self._digests[module]}\n".encode())
        return digest.hexdigest()

    def digest(self, module: str) -> str:
        """SHA-256 of a module's :func:`syntax`."""
        return hashlib.sha256(syntax(self.tree(module)).encode()).hexdigest()

    def _entry_modules(self, name: str) -> Iterator[str]:
        for entry in PURPOSES.get(name, (name,)):
            path = self._path(entry)
            if path is None:
                raise ConfigError(
                    f"{name} is neither a purpose nor a module of refblend ({entry} is missing)",
                    f"Use one of {', '.join(PURPOSES)}, or a dotted name as in study.runs.",
                )
            yield entry
            if path.name == "__init__.py":
                files = path.parent.rglob("*.py") if name == "reports" else path.parent.glob("*.py")
                for file in files:
                    parts = file.relative_to(self.root).with_suffix("").parts
                    yield ".".join(parts).removesuffix(".__init__")

    def has(self, module: str) -> bool:
        """Whether the package has a module or subpackage of this dotted name."""
        return self._path(module) is not None

    def _path(self, module: str) -> Path | None:
        """File of a module or package; None when there is none."""
        base = self.root.joinpath(*module.split(".")) if module else self.root
        candidates = (base / "__init__.py", base.with_suffix(".py"))
        return next((path for path in candidates if path.is_file()), None)

    def tree(self, module: str) -> ast.Module:
        """Syntax tree of a module, by its dotted name below the package."""
        if module not in self._trees:
            path = self._path(module)
            assert path is not None, module
            self._trees[module] = ast.parse(path.read_bytes(), filename=str(path))
        return self._trees[module]

    def _imports(self, module: str) -> set[str]:
        """Modules that a module imports; a package itself when a name is imported from it."""
        if module not in self._imported:
            wanted = self._imported[module] = set()
            for base, name in _imported_names(self.tree(module)):
                submodule = f"{base}.{name}" if base and name else base or name
                wanted.add(submodule if self._path(submodule) else base)
        return self._imported[module]


def code_hash(*names: str) -> str:
    """Hash of this installation's code for purposes or entries; see :meth:`Source.modules`."""
    return installed().hash(*names)


def code_hashes() -> dict[str, str]:
    """The hash of every purpose."""
    return {purpose: code_hash(purpose) for purpose in PURPOSES}


@functools.cache
def installed() -> Source:
    """The source of this installation."""
    return Source()


_SAYS_NOTHING = ("ctx", "kind", "type_comment")


def syntax(node: Any) -> str:
    """A tree of :mod:`ast` as text: no positions, docstrings, comments; the same on any Python."""
    if isinstance(node, list):
        return f"[{','.join(syntax(item) for item in node if not _is_bare_text(item))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = []
    for name in node._fields:
        value = None if name in _SAYS_NOTHING else getattr(node, name, None)
        # Newer versions of Python add fields that are empty for older syntax.
        if value is not None and value != []:
            fields.append(f"{name}={syntax(value)}")
    return f"{type(node).__name__}({','.join(fields)})"


def _is_bare_text(node: Any) -> bool:
    """Whether a statement is a string alone: a docstring, also of a field or constant."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _imported_names(node: ast.AST) -> Iterator[tuple[str, str]]:
    """What a tree imports from ``refblend``: dotted names of modules, and names within them."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):  # holds no statement
            continue
        if isinstance(child, ast.Import):
            names = [(alias.name, "") for alias in child.names]
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, "the package's imports are absolute"
            names = [(child.module or "", alias.name) for alias in child.names]
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            names = []
            for statement in child.orelse:
                yield from _imported_names(statement)
        else:
            names = []
            yield from _imported_names(child)
        for module, name in names:
            top, _, rest = module.partition(".")
            if top == "refblend":
                yield rest, name


def without_effect(module: str) -> bool:
    """Whether a module changes no number, see :data:`WITHOUT_EFFECT`."""
    parts = module.split(".")
    return any(".".join(parts[: end + 1]) in WITHOUT_EFFECT for end in range(len(parts)))


if __name__ == "__main__":
    write_json(sys.argv[1], code_hashes())
