"""librdkafka's errors, told with what to do."""

from confluent_kafka import KafkaError, KafkaException

from penstock.admin.failures import CommandFailed, explain


def test_an_error_comes_with_advice_where_there_is_some() -> None:
    failure = explain(KafkaError(KafkaError.TOPIC_ALREADY_EXISTS, "it is there"), "creating topic t")
    assert failure.what == "creating topic t: it is there"
    assert "--if-not-exists" in failure.advice
    assert failure.exit_code == 1
    assert str(failure) == f"{failure.what}\n  {failure.advice}"


def test_an_exception_is_read_as_the_error_in_it() -> None:
    error = KafkaError(KafkaError.NON_EMPTY_GROUP, "members are left")
    assert "Stop its members" in explain(KafkaException(error), "deleting").advice


def test_what_is_no_error_of_librdkafka_is_told_as_it_is() -> None:
    assert str(explain(ValueError("no"), "asking")) == "asking: no"
    assert str(explain("nothing came", "asking")) == "asking: nothing came"
    assert str(CommandFailed("plain")) == "plain"
