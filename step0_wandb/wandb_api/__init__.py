"""The W&B server as a program sees it: the key, HTTP, GraphQL, faults, and what a run can be asked."""
