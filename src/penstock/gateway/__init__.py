"""HTTP beside the brokers: schema registry, REST, console. One process, a plain Kafka client of its cluster.

Called by cli.gateway. Nothing here is imported by a broker: starlette, uvicorn and the schema libraries would cost it
time and memory at every start.
"""
