"""Registries: names from decorators, installed packages and the environment; unknown names; variants."""

from __future__ import annotations

import sys
import textwrap

import pytest
import torch

import ocssl
from ocssl import augment, config, memory, methods, nn, optim, strategies
from ocssl.data import streams
from ocssl.errors import ConfigError
from ocssl.registry import Registry, source, unknown


def test_the_shipped_names_are_those_of_the_paper_in_its_order_then_others():
    expected = (
        "finetune er minred lump cassle cassle-r scale osiris-r osiris-d cla-b cla-e cla-r pfr sy-con pocon cmp reset "
        "adapt multiview-r taught"
    )
    assert strategies.registry.names() == expected.split()
    expected = "simsiam simclr byol moco barlow vicreg swav dino emp emp-simclr lejepa"
    assert methods.registry.names() == expected.split()
    assert memory.registry.names() == ["fifo", "reservoir", "minred", "hybrid", "hybrid-minred", "anchored"]
    assert optim.registry.names() == ["sgd", "adamw", "lars"]
    assert augment.registry.names() == ["simclr"]
    assert nn.backbones.registry.names() == ["resnet18", "convnet", "efficientnet-lite0"]


@pytest.mark.parametrize(
    ("get", "wrong", "right"),
    [
        (strategies.registry.get, "clae", "cla-e"),
        (strategies.registry.get, "CLA-E", "cla-e"),
        (strategies.registry.get, "ER", "er"),
        (strategies.registry.get, "finetuning", "finetune"),
        (methods.registry.get, "SimSiam", "simsiam"),
        (memory.registry.get, "resevoir", "reservoir"),
    ],
)
def test_a_wrong_name_is_refused_with_the_nearest_and_all_known_ones(get, wrong, right):
    with pytest.raises(ConfigError, match=f"unknown [a-z]+ '{wrong}'; did you mean '{right}'\\? Known: "):
        get(wrong)


def test_a_name_like_no_other_is_refused_without_a_guess():
    message = str(unknown("memory", "quux", ["fifo", "reservoir"]))
    assert message == "unknown memory 'quux'. Known: fifo, reservoir"


def test_a_decorator_registers_and_gives_the_thing_back():
    animals = Registry[type]("animal")

    @animals.register("cat")
    class Cat: ...

    assert animals.get("cat") is Cat
    assert "cat" in animals
    assert "dog" not in animals


def test_names_come_in_the_order_of_registration():
    animals = Registry[str]("animal")
    for name in ("zebra", "ant", "mole"):
        animals.register(name)(name.upper())
    assert animals.names() == ["zebra", "ant", "mole"]


def test_a_name_is_taken_once():
    animals = Registry[type]("animal")
    first, second = type("First", (), {}), type("Second", (), {})
    animals.register("cat")(first)
    with pytest.raises(ConfigError, match=r"animal 'cat' is already registered, as .*First'>; choose another name"):
        animals.register("cat")(second)
    assert animals.get("cat") is first


def test_a_definition_that_comes_again_replaces_the_earlier_one():
    """As when a notebook's cell runs again, or a module is reloaded."""
    animals, plain = Registry[type]("animal"), Registry[str]("plain animal")
    for variant in (None, "wild"):
        first, again = type("Cat", (), {}), type("Cat", (), {})
        for entry in (first, again):
            animals.register("cat", variant=variant)(entry)
        assert animals.get("cat", variant or "default") is again
    cell = "register('cat')(text)"
    for module, text in (("mylab", "the first"), ("mylab", "the second")):
        exec(cell, {"__name__": module, "register": plain.register, "text": text})
    assert plain.get("cat") == "the second"
    with pytest.raises(ConfigError, match="plain animal 'cat' is already registered, as 'the second'"):
        exec(cell, {"__name__": "otherlab", "register": plain.register, "text": "the third"})


def test_a_part_is_registered_under_a_name():
    with pytest.raises(
        ConfigError, match=r"a strategy is registered under a name, as @register\('mine'\), not as <class"
    ):
        strategies.register(strategies.Finetune)


def test_a_part_of_another_kind_is_refused():
    with pytest.raises(ConfigError, match="memory 'mine' must be a class that derives from Memory, not <class"):
        memory.register("mine")(strategies.Finetune)
    assert "mine" not in memory.registry


@pytest.mark.parametrize(
    ("registry", "base", "method"),
    [
        (methods.registry, methods.Method, "loss"),
        (memory.registry, memory.Memory, "assign_slots"),
        (optim.registry, optim.Optimizer, "update"),
        (streams.registry, streams.StreamType, "build"),
    ],
)
def test_a_part_without_its_main_method_is_refused(registry, base, method):
    class Mine(base):
        """It has only a name."""

    kind = registry.kind
    sentence = rf"class Mine of {kind} 'mine' has no {method}\(\), which every {kind} needs; define it"
    with pytest.raises(ConfigError, match=sentence):
        registry.register("mine")(Mine)
    assert "mine" not in registry


@pytest.mark.parametrize(
    ("registry", "part", "written", "meant"),
    [
        (strategies.registry, strategies.Finetune, "after_steps", "after_step"),
        (strategies.registry, strategies.Finetune, "after_minibatches", "after_minibatch"),
        (strategies.registry, strategies.Finetune, "penalties", "penalty"),
        (strategies.registry, strategies.Finetune, "boundaries", "boundary"),
        (strategies.registry, strategies.Finetune, "mixes", "mix"),
        (strategies.registry, strategies.Finetune, "loss", "losses"),
        (methods.registry, methods.registry.get("simclr"), "losses", "loss"),
        (methods.registry, methods.registry.get("simclr"), "begins", "begin"),
        (memory.registry, memory.registry.get("fifo"), "update_feature", "update_features"),
        (optim.registry, optim.SGD, "moment", "moments"),
    ],
)
def test_a_method_that_is_nearly_named_like_a_hook_is_refused(registry, part, written, meant):
    sentence = (
        rf"class Mine of {registry.kind} 'mine' has {written}\(\), which nothing calls; did you mean {meant}\(\)\?"
    )
    with pytest.raises(ConfigError, match=sentence):
        registry.register("mine")(type("Mine", (part,), {written: lambda *given: None}))
    assert "mine" not in registry
    registry.register("mine")(type("Mine", (part,), {f"_{written}": lambda *given: None}))


@pytest.mark.parametrize(
    "helper", ["penalties", "penalize", "past_losses", "mixture", "bound", "entries", "class_keys"]
)
def test_helpers_are_taken_whose_names_are_no_hooks_or_stand_beside_the_hook(helper):
    strategies.register("mine")(type("Mine", (strategies.Finetune,), dict.fromkeys((helper, "penalty"), lambda *_: 0)))
    assert "mine" in strategies.registry


@pytest.mark.parametrize(("missing", "other"), [("losses", "projector"), ("projector", "losses")])
def test_a_strategy_with_own_loss_and_without_what_that_needs_is_refused(missing, other):
    mine = type("Mine", (strategies.Strategy,), {"own_loss": True, other: lambda *given: None})
    sentence = rf"class Mine of strategy 'mine' has no {missing}\(\), which a strategy with own_loss needs; define it"
    with pytest.raises(ConfigError, match=sentence):
        strategies.register("mine")(mine)
    assert "mine" not in strategies.registry


@pytest.mark.parametrize(
    ("registry", "base", "known"),
    [
        (strategies.registry, strategies.Strategy, "Strategy"),
        (memory.registry, memory.Memory, "Memory"),
        (optim.registry, optim.Optimizer, "Optimizer"),
        (augment.registry, augment.Augmentation, "ocssl.options"),
        (nn.backbones.registry, torch.nn.Module, "ocssl.options"),
    ],
)
def test_settings_that_cannot_be_read_are_refused_where_they_are_registered(registry, base, known):
    class Mine(base):
        class Options:
            strength = 0.5

    with pytest.raises(ConfigError, match=f"class Options of [a-z]+ 'mine' must derive from {known}.Options"):
        registry.register("mine")(Mine)
    assert "mine" not in registry


def test_a_setting_without_default_is_refused_where_it_is_registered():
    class Mine(strategies.Strategy):
        class Options(strategies.Strategy.Options):
            strength: float

    with pytest.raises(ConfigError, match="setting 'strength' of strategy 'mine' has no default; give it one"):
        strategies.register("mine")(Mine)
    assert "mine" not in strategies.registry


def test_a_variant_is_given_where_there_is_one_and_the_plain_entry_elsewhere():
    animals = Registry[str]("animal")
    animals.register("cat", variant="original")("wildcat")
    animals.register("cat")("cat")
    animals.register("dog")("dog")
    assert animals.get("cat") == animals.get("cat", variant="default") == "cat"
    assert animals.get("cat", variant="original") == "wildcat"
    assert animals.get("cat", variant="authors") == "cat"
    assert animals.get("dog", variant="original") == "dog"
    assert animals.names() == ["cat", "dog"]
    assert (animals.variants("cat"), animals.variants("dog")) == (["original"], [])


def test_a_variant_is_taken_once_and_needs_a_known_name():
    animals = Registry[type]("animal")
    animals.register("cat", variant="original")(type("First", (), {}))
    with pytest.raises(ConfigError, match=r"animal 'cat' in variant 'original' is already registered, as .*First'>"):
        animals.register("cat", variant="original")(type("Second", (), {}))
    with pytest.raises(ConfigError, match="unknown animal 'cat'"):
        animals.get("cat", variant="original")


def test_every_variant_belongs_to_a_listed_strategy_and_keeps_its_nature():
    for name in strategies.registry.names():
        plain = strategies.registry.get(name)
        for variant in strategies.registry.variants(name):
            assert variant in ("authors", "original")
            kind = strategies.registry.get(name, variant)
            assert issubclass(kind, plain)
            assert issubclass(kind.Options, plain.Options)
            assert (kind.composition, kind.own_loss, kind.insert_at) == (
                plain.composition,
                plain.own_loss,
                plain.insert_at,
            )


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """A package installed beside ocssl that announces two strategies: one plain, one that also registers itself."""
    (tmp_path / "someones_plugin.py").write_text(
        textwrap.dedent("""
            from ocssl.strategies import Finetune, register

            class Plain(Finetune):
                '''Announced by the entry point alone.'''

            @register("someones-own")
            class SelfRegistered(Finetune):
                '''Announced and registered.'''
        """)
    )
    info = tmp_path / "someones_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: someones-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[ocssl.strategies]\nsomeones-plain = someones_plugin:Plain\nsomeones-own = someones_plugin:SelfRegistered\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(strategies.registry, "_left_out", set())
    yield tmp_path
    sys.modules.pop("someones_plugin", None)


@pytest.mark.usefixtures("plugin")
def test_an_installed_package_announces_names_and_is_imported_only_when_one_is_asked_for():
    assert strategies.registry.names()[-2:] == ["someones-plain", "someones-own"]
    assert strategies.registry.names()[0] == "finetune"
    assert "someones_plugin" not in sys.modules
    assert strategies.registry.get("someones-plain").__name__ == "Plain"
    assert strategies.registry.get("someones-own").__name__ == "SelfRegistered"
    assert len(strategies.registry.names()) == len(set(strategies.registry.names()))


@pytest.mark.usefixtures("plugin")
def test_an_announced_name_is_suggested_too():
    with pytest.raises(ConfigError, match="did you mean 'someones-plain'"):
        strategies.registry.get("someones-plane")


def test_an_entry_point_that_cannot_be_imported_is_refused_by_its_name_and_package(plugin):
    (plugin / "someones_plugin.py").write_text("import nowhere_to_be_found")
    with pytest.raises(ConfigError) as refused:
        strategies.registry.get("someones-own")
    assert str(refused.value) == (
        "cannot import strategy 'someones-own' (someones_plugin:SelfRegistered) of package 'someones-plugin': "
        "ModuleNotFoundError: No module named 'nowhere_to_be_found'; mend or uninstall the package"
    )
    assert strategies.registry.get("er").__name__ == "ExperienceReplay"


def test_an_entry_point_that_cannot_be_imported_hides_no_setting_of_others(plugin, caplog):
    (plugin / "someones_plugin.py").write_text("import nowhere_to_be_found")
    for _ in range(2):
        assert "omega" in config.settings()
        parts = strategies.registry.parts()
    assert parts.keys() == {*strategies.registry.names()} - {"someones-own", "someones-plain"}
    said = [record.getMessage() for record in caplog.records]
    assert [line.partition(" (")[0] for line in said] == [
        "cannot import strategy 'someones-plain'",
        "cannot import strategy 'someones-own'",
    ]


def test_a_part_of_ones_own_has_not_the_source_of_its_base():
    mine = type("Mine", (strategies.registry.get("er"),), {"__module__": "mylab"})
    theirs = type("Theirs", (strategies.registry.get("er"),), {"__module__": "ocssl.strategies.theirs"})
    assert source(mine) == ""
    assert source(theirs) == source(strategies.registry.get("er")) != ""


def test_an_entry_point_of_another_kind_is_refused(plugin):
    (plugin / "someones_plugin.py").write_text("class Plain: ...")
    with pytest.raises(ConfigError, match="strategy 'someones-plain' must be a class that derives from Strategy, not "):
        strategies.registry.get("someones-plain")


@pytest.mark.parametrize(
    ("code", "why"), [("", "AttributeError: "), ("import sys\nsys.exit('needs a GPU')", "SystemExit: needs a GPU")]
)
def test_an_entry_point_that_names_nothing_or_ends_the_process_is_refused_too(plugin, code, why):
    (plugin / "someones_plugin.py").write_text(code)
    with pytest.raises(ConfigError, match=rf"cannot import strategy 'someones-plain' .*: {why}"):
        strategies.registry.get("someones-plain")


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Two modules on the path, one with a strategy and one with a memory, and OCSSL_PLUGINS to name them in."""
    (tmp_path / "own_strategy_module.py").write_text(
        "from ocssl.strategies import Finetune, register\n\n@register('own-strategy')\nclass Own(Finetune): ...\n"
    )
    (tmp_path / "own_memory_module.py").write_text(
        "from ocssl.memory import Fifo, register\n\n@register('own-memory')\nclass Own(Fifo): ...\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("OCSSL_PLUGINS", "own_strategy_module, own_memory_module")
    yield tmp_path
    for name in ("own_strategy_module", "own_memory_module"):
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("own")
def test_modules_of_the_environment_are_imported_when_a_name_is_not_known_without_them():
    assert strategies.registry.get("er").__name__ == "ExperienceReplay"
    assert "own_strategy_module" not in sys.modules
    assert strategies.registry.get("own-strategy").__module__ == "own_strategy_module"
    assert memory.registry.get("own-memory").__module__ == "own_memory_module"


@pytest.mark.usefixtures("own")
def test_names_of_the_environments_modules_are_listed_and_suggested():
    assert strategies.registry.names()[-1] == "own-strategy"
    with pytest.raises(ConfigError, match="did you mean 'own-memory'"):
        memory.registry.get("own-memroy")


def test_a_module_of_the_environment_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setenv("OCSSL_PLUGINS", "no_such_module")
    message = (
        "cannot import 'no_such_module' of OCSSL_PLUGINS: ModuleNotFoundError: No module named 'no_such_module'; "
        "correct it, or put its folder on PYTHONPATH"
    )
    for ask in (
        strategies.registry.names,
        lambda: strategies.registry.get("mine"),
        lambda: "mine" in strategies.registry,
    ):
        with pytest.raises(ConfigError) as refused:
            ask()
        assert str(refused.value) == message


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("raise RuntimeError('half\\ndone')", "RuntimeError: half;"),
        ("import sys\nsys.exit('needs a licence')", "SystemExit: needs a licence;"),
    ],
)
def test_a_module_of_the_environment_that_fails_is_named_with_the_first_line_of_why(own, code: str, why: str):
    (own / "own_strategy_module.py").write_text(code)
    with pytest.raises(ConfigError, match=f"cannot import 'own_strategy_module' of OCSSL_PLUGINS: {why}"):
        strategies.registry.names()


@pytest.mark.usefixtures("plugin")
def test_a_strategy_of_somebody_else_works_by_name():
    learner = ocssl.Learner(
        strategy="someones-plain", backbone="resnet18-w1", image_size=8, stream_batch=2, hidden_dim=4, output_dim=4
    )
    assert type(learner.train_state.strategy).__name__ == "Plain"
