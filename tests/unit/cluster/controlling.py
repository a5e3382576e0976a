"""What tests of the controller say to it, and what they find in its store past its image."""

from penstock.cluster.image import ClusterImage
from penstock.cluster.overrides import ConfigChange, ConfigOp

STATE = b'{"leader":1,"leader_epoch":0,"isr":[1],"replicas":[1],"partition_epoch":0}'


async def keys(node, family: str) -> list[str]:
    prefix = f"{node.image.layout.prefix}{family}"
    return [item.key.removeprefix(prefix) for item in (await node.store.range(prefix)).items]


async def fresh_image(node) -> ClusterImage:
    image = ClusterImage(node.image.layout)
    image.load(await node.store.range(image.layout.prefix))
    return image


def set_config(name: str, value: str) -> ConfigChange:
    return ConfigChange(name, ConfigOp.SET, value)
