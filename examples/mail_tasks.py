"""Tasks: functions that a worker runs.

python examples/mail_tasks.py             # enqueue some
monarq worker start --app examples.mail_tasks:mq --store sqlite:///mail.db --burst
"""

from monarq import Client

mq = Client("sqlite:///mail.db")


@mq.task(queue="mail", retries=3, backoff=2, timeout=30)
def send_mail(to: str, subject: str) -> str:
    if "@" not in to:
        raise ValueError(f"{to!r} is no address")
    return f"sent {subject!r} to {to}"


@mq.cron("0 8 * * *", queue="mail", zone="Europe/Berlin")
def morning_report() -> str:
    return "good morning"


def main() -> None:
    for name in ("ada", "bob"):
        job = send_mail.enqueue(f"{name}@example.org", subject="Your order")
        print("enqueued", job.id)
    later = send_mail.schedule(after=3600).enqueue("ada@example.org", subject="How was it?")
    print("in an hour", later.id)


if __name__ == "__main__":
    main()
