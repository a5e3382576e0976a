"""The clients, each a process of its own in a Python that has its library; driver.py says how they are spoken to."""
