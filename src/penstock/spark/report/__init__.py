"""`penstock report`: how much each topic holds, how fast it grows, what it costs, and where that leads."""
