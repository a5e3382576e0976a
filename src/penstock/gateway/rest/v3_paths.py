"""REST v3: where things are, and who is meant by a path: the cluster, a topic, a broker, or 404.

Called by the v3 modules, events and sockets: each row stands on a path of here, each handler begins with what is named.
"""

from typing import NamedTuple

from starlette.requests import HTTPConnection, Request

from penstock.gateway.app import Services
from penstock.gateway.errors import UNKNOWN_TOPIC_OR_PARTITION, HttpProblem
from penstock.gateway.rest import asking
from penstock.gateway.rest.envelope import Links, links_for
from penstock.gateway.rest.names import topic_in
from penstock.gateway.rest.reading import path_int
from penstock.gateway.rest.shapes import BROKER_ID, PARTITION, TOPIC_NAME, Schema
from penstock.gateway.rest.table import Answer, Handler, Operation, Parameter, path_parameters

CLUSTER = "/v3/clusters/{cluster_id}"
TOPICS = f"{CLUSTER}/topics"
TOPIC = f"{TOPICS}/{{topic_name}}"
RECORDS = f"{TOPIC}/records"
BROKERS = f"{CLUSTER}/brokers"
GROUPS = f"{CLUSTER}/consumer-groups"

IN_CLUSTER = path_parameters(cluster_id={"type": "string", "minLength": 1, "maxLength": 100})
IN_TOPIC = (*IN_CLUSTER, *path_parameters(topic_name=TOPIC_NAME))
IN_PARTITION = (*IN_TOPIC, *path_parameters(partition_id=PARTITION))
IN_BROKER = (*IN_CLUSTER, *path_parameters(broker_id=BROKER_ID))

# What may be wrong with a request that changes something.
WRONG_CHANGE = (400, 404, 408, 413, 415, 422)
BROKER_NOT_FOUND = 40403


class NamedTopic(NamedTuple):
    name: str
    partitions: int


def get_row(
    tag: str,
    path: str,
    handler: Handler,
    summary: str,
    schema: Schema,
    parameters: tuple[Parameter, ...] = (),
    problems: tuple[int, ...] = (404,),
) -> Operation:
    """A row that only tells something."""
    return Operation(
        "GET", path, handler, summary, tag, (Answer(200, "What was asked for.", schema),), parameters, None, problems
    )


def not_found() -> HttpProblem:
    return HttpProblem(404, UNKNOWN_TOPIC_OR_PARTITION, "This cluster has no such topic or partition.")


def broker_not_found() -> HttpProblem:
    return HttpProblem(404, BROKER_NOT_FOUND, "The cluster has no such broker.")


def name_topic(connection: HTTPConnection, services: Services) -> tuple[Links, str]:
    """The topic as the path has it, whether or not there is one."""
    links = links_for(connection, services)
    return links, topic_in(connection, not_found(), "topic_name")


async def find_topic(connection: HTTPConnection, services: Services) -> NamedTopic:
    """What is needed to write to it or to read it: known for a moment, so that not every request asks the cluster."""
    _, name = name_topic(connection, services)
    facts = await services.kafka.topic(name)
    if facts is None:
        raise not_found()
    return NamedTopic(name, facts.partitions)


async def describe_topic(request: Request, services: Services) -> tuple[Links, asking.Topic]:
    """All there is to tell of it, asked now."""
    links, name = name_topic(request, services)
    return links, await services.kafka.ask(lambda cluster: asking.describe_topic(cluster, name))


async def describe_broker(request: Request, services: Services) -> tuple[Links, asking.Node]:
    links = links_for(request, services)
    number = path_int(request, "broker_id", broker_not_found())
    for node in (await services.kafka.ask(asking.describe_cluster)).nodes:
        if node.id == number:
            return links, node
    raise broker_not_found()
