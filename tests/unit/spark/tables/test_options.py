"""Options of the table sinks: how they may be written, and what is refused with which words."""

import pytest

from penstock.spark.errors import BadOption
from penstock.spark.tables.options import OPTIONS, SinkOptions, sink_options


def test_names_are_taken_as_python_spark_and_yaml_write_them() -> None:
    for name in ("merge_schema", "mergeSchema", "merge-schema"):
        assert sink_options("delta", {"path": "x", name: "true"}).merge_schema
    found = sink_options("delta", {"path": "x", "partitionBy": "day, shop", "mode": "complete"})
    assert (found.partition_by, found.mode) == (("day", "shop"), "overwrite")
    assert sink_options("delta", {"path": "x", "mode": "update", "keys": ["a", "b"]}).keys == ("a", "b")


def test_properties_of_a_catalog_come_flat_nested_or_as_json() -> None:
    wanted = {"type": "rest", "uri": "http://catalog"}
    for given in (
        {"catalog.type": "rest", "catalog.uri": "http://catalog"},
        {"catalog": wanted},
        {"catalog": '{"type": "rest", "uri": "http://catalog"}'},
        {"catalog": {"type": "rest"}, "catalog.uri": "http://catalog"},
    ):
        assert sink_options("iceberg", {"table": "a.b", **given}).catalog == wanted


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        ("orc", {}, "there is no table of kind orc"),
        ("delta", {}, "a delta table needs path"),
        ("delta", {"path": "x", "mergeShema": 1}, "unknown option mergeShema: did you mean merge_schema"),
        ("delta", {"path": "x", "path.x": 1}, "unknown option path.x"),
        ("delta", {"path": "x", "url": "y"}, "unknown option url"),
        ("delta", {"path": "x", "merge_schema": "maybe"}, "merge_schema must be true or false, not maybe"),
        ("delta", {"path": "x", "mode": "replace"}, "mode must be one of append, overwrite"),
        ("delta", {"path": "x", "mode": "upsert"}, "mode=upsert needs keys"),
        ("delta", {"path": "x", "keys": "id"}, "with mode=upsert only"),
        ("delta", {"path": "x", "target_file_bytes": "0"}, "target_file_bytes must be a whole number above 0"),
        ("delta", {"path": "x", "compression": "rar"}, "compression must be one of"),
        ("delta", {"path": "x", "on_old_batch": "hope"}, "on_old_batch must be fail or skip"),
        ("delta", {"path": "x", "storage_options": "no json"}, "storage_options must be a mapping"),
        ("iceberg", {"catalog.type": "rest"}, "needs table=namespace.name"),
        ("iceberg", {"path": "x", "mode": "upsert"}, "a table of kind iceberg cannot upsert"),
        ("parquet", {"path": "s3://bucket/x"}, "use a delta or iceberg table there"),
        ("postgres", {"table": "x"}, "needs url=postgresql"),
        ("postgres", {"url": "postgresql://u:p@h/d"}, "needs table="),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(kind: str, options: dict[str, object], words: str) -> None:
    with pytest.raises(BadOption, match=words):
        sink_options(kind, options)


def test_secrets_show_in_no_repr() -> None:
    secret = "s3cr3t"
    shown = [
        sink_options("postgres", {"url": f"postgresql://u:{secret}@h/d", "table": "t"}),
        sink_options("iceberg", {"table": "a.b", "catalog.token": secret}),
        sink_options("delta", {"path": "x", "storage_options.AWS_SECRET_ACCESS_KEY": secret}),
    ]
    assert secret not in repr(shown)


def test_every_option_is_described_and_its_default_is_the_real_one() -> None:
    fields = SinkOptions.__dataclass_fields__
    assert {option.name for option in OPTIONS} == set(fields) - {"kind"}
    for option in OPTIONS:
        default = fields[option.name].default
        if isinstance(default, str | int | bool):
            assert str(default).lower() == option.default, option.name
