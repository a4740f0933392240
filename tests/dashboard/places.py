"""Every page of the dashboard, with the words that only it has."""

from tests.dashboard.seeding import STUCK_GROUP, STUCK_PARTITION, STUCK_QUEUE, Caller

TRANSACTION = "order-4711"

#: Place, and something that must be on it when there is data.
EVERYWHERE = {
    "overview": ("", "Needs attention"),
    "queues": ("#/queues", STUCK_QUEUE),
    "queue": (f"#/queues/{STUCK_QUEUE}", STUCK_GROUP),
    "partitions": (f"#/queues/{STUCK_QUEUE}?tab=partitions", STUCK_PARTITION),
    "options": (f"#/queues/{STUCK_QUEUE}?tab=options", "Lease time"),
    "work-queue": ("#/queues/thumbnails", "Items by state"),
    "messages": (f"#/messages?queue={STUCK_QUEUE}", "customer-0"),
    "groups": ("#/groups", STUCK_GROUP),
    "group": (f"#/groups/{STUCK_GROUP}/{STUCK_QUEUE}", "Skip to the dead letters"),
    "dead-letters": ("#/dead-letters", "CardDeclined: insufficient funds"),
    "jobs": ("#/jobs?queue=thumbnails", "later.png"),
    "workers": ("#/jobs?tab=workers", "Workers"),
    "schedules": ("#/jobs?tab=schedules", "Schedules"),
    "pipeline": ("#/pipeline", "Pipeline"),
    "system": ("#/system", "This process"),
    "switches": ("#/system?tab=switches", "Maintenance"),
    "settings": ("#/system?tab=settings", "max_body_bytes"),
}


def places(api: Caller) -> dict[str, tuple[str, str]]:
    """With those of things whose ids are only known when they are there."""
    [message] = api.get(f"/api/v1/dashboard/find?transactionId={TRANSACTION}")["found"]
    [job, *_] = api.get("/api/v1/dashboard/items?queue=thumbnails&state=ready")["items"]
    return EVERYWHERE | {
        "message": (f"#/messages/{message['partitionId']}/{message['id']}", TRANSACTION),
        "job": (f"#/jobs/{job['id']}", job["data"]["image"]),
    }
