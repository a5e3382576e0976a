"""Transactions are not served yet: a client that wants one is told so at once and in words."""

import pytest
from client import Client
from driver import ClientError
from roster import clients

REFUSAL = "(?i)transaction.*(auth|not supported|unsupported)"


@clients()
def test_a_transactional_producer_is_refused_in_words(client: Client) -> None:
    with pytest.raises(ClientError, match=REFUSAL):
        client.producer(transactional_id="copier", idempotent=True)
