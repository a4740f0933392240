"""The JSON of the API, as typed structs: they decode the requests, encode the answers and are
what `openapi.json` is generated from. Nothing here does anything.

Names are camelCase on the wire, but for the answer to a push. `null` counts as absent in every
request.
"""
