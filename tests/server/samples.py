"""What a page of metrics says."""

from prometheus_client.parser import text_string_to_metric_families


def values(text: str) -> dict[str, float]:
    """Every sample of Prometheus' text by its name and labels."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}"] = sample.value
    return found
