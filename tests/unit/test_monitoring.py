"""The dashboard and the alert rules ask only for what a run exports: each expression is held against a real scrape."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

import springtide as st
from springtide import monitoring
from springtide.cli.app import app
from springtide.runtime.exporting import Exporter
from tests.unit.runtime.test_exporting import read, run_some

WORDS = {
    *("sum", "max", "min", "rate", "increase", "deriv", "min_over_time", "predict_linear", "time"),
    *("by", "and", "ignoring", "label_values"),
}

Scrape = dict[str, dict[str, set[str]]]


@pytest.fixture(scope="module")
def scrape(tmp_path_factory: pytest.TempPathFactory) -> Scrape:
    """Metric → label → its values, of a run whose policy was refused something."""
    exporter = Exporter("counting", 0)
    try:
        run_some(exporter, tmp_path_factory.mktemp("scraped"))
        text, _ = read(exporter)
    finally:
        exporter.close()
    found: Scrape = {}
    for family in text_string_to_metric_families(text):
        if family.name.endswith("refusals"):  # nothing was refused: its labels are in its help
            found[family.name] = {"query": {"counting"}, "subquery": set(), "rule": set()}
        for sample in family.samples:
            labels = found.setdefault(sample.name, {})
            for name, value in sample.labels.items():
                labels.setdefault(name, set()).add(value)
    return found


def panels() -> list[Any]:
    return list(json.loads(monitoring.dashboard())["panels"])


def rules() -> list[Any]:
    return [rule for group in yaml.safe_load(monitoring.alerts())["groups"] for rule in group["rules"]]


EXPRESSIONS = {
    **{f"{p['title']} ({p['type']}) {t['refId']}": t["expr"] for p in panels() for t in p["targets"]},
    **{rule["alert"]: rule["expr"] for rule in rules()},
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_every_expression_asks_for_what_there_is(name: str, scrape: Scrape) -> None:
    expression = EXPRESSIONS[name]
    bare = re.sub(r'"[^"]*"', '""', expression)
    grouped = set(re.findall(r"\w+", " ".join(re.findall(r"(?:by|ignoring) \(([^)]*)\)", bare))))
    metrics = re.findall(r"\b(springtide_\w+)(?:\{([^}]*)\})?", expression)
    assert metrics
    for metric, selector in metrics:
        assert metric in scrape, f"{metric} is not exported"
        labels = scrape[metric]
        for label, how, value in re.findall(r'(\w+)(=~|=)"([^"]*)"', selector):
            assert label in labels, f"{metric} has no label {label}"
            if "$" not in value:
                wanted = set(value.split("|")) if how == "=~" else {value}
                assert wanted <= labels[label], f"{label} of {metric} is never {value}"
        assert grouped <= set(labels), f"{metric} has not all of {grouped}"
    named = {m for m, _ in metrics} | grouped | {label for m, _ in metrics for label in scrape[m]}
    words = set(re.findall(r"(?<![\w$.])[a-z_]\w*", re.sub(r"\[[^]]*\]|\d+(?:\.\d+)?e\d+", "", bare)))
    assert words <= named | WORDS, words - named - WORDS


@pytest.mark.parametrize("panel", panels(), ids=lambda p: f"{p['title']} ({p['type']})")
def test_legends_name_labels_that_are_left(panel: Any, scrape: Scrape) -> None:
    for target in panel["targets"]:
        by = re.search(r"by \(([^)]*)\)", target["expr"])
        (metric, *_) = re.findall(r"springtide_\w+", target["expr"])
        left = set(re.findall(r"\w+", by[1])) if by else set(scrape[metric])
        assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= left, target
    assert panel["description"]


def test_every_rule_says_what_happened_and_what_to_do(scrape: Scrape) -> None:
    assert len({rule["alert"] for rule in rules()}) == len(rules()) >= 8
    for rule in rules():
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["description"]
        (metric, *_) = re.findall(r"springtide_\w+", rule["expr"])
        used = set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
        assert used <= set(scrape[metric]), rule["alert"]


def test_commands_print_them() -> None:
    run = CliRunner().invoke
    assert json.loads(run(app, ["monitoring", "dashboard"]).stdout)["title"] == "Springtide"
    assert run(app, ["monitoring", "alerts"]).stdout == monitoring.alerts()


def test_panels_do_not_lie_on_each_other() -> None:
    cells = [
        (x, y)
        for place in (p["gridPos"] for p in panels())
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) == 23
    assert len({p["id"] for p in panels()}) == len(panels())


def test_what_is_said_about_metrics_is_true(scrape: Scrape) -> None:
    page = (Path(__file__).parents[2] / "docs" / "elasticity.md").read_text("utf-8")
    told = set(re.findall(r"`(springtide_\w+)`", page))
    known = {re.sub(r"_(count|sum)$", "", name) for name in scrape} | {"springtide_slots", "springtide_executors"}
    assert told <= known, told - known
    assert st.__version__
