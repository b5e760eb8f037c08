"""Dashboards, alarms and what they cost, as plain values: what is drawn, before anybody draws it.

Invariant: pure functions of the environment, its experiments and the catalogue; neither AWS nor a clock is asked. The
CloudFormation stack and the page without AWS are made from the same widgets.
"""
