"""Pipelines from a file: sources, steps and sinks in YAML, run as Spark streaming queries.

Called by cli.pipeline. The walk of a file: text (YAML with positions) -> substitution (${NAME}, --set) -> loading
(typed model, mistakes by line) -> graph (who reads whom) -> building (DataFrames) -> running (queries, restarts) ->
status. Nothing before `building` needs Spark or Java.
"""
