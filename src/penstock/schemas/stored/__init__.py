"""What a registry keeps in its schemas topic, and what that means: records, the state they add up to, schemas parsed.

Used by the gateway's registry, which also writes the topic, and by the brokers' validation, which only reads it; so
both take the same records for the same schemas.
"""
