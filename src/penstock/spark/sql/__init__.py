"""`penstock sql`: Spark SQL over topics, once or for as long as it is wanted."""
