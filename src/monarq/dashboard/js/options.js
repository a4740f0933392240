/* What the options of a queue mean: names, units and bounds, for the form that edits them. The
   broker checks them again. */

const WEEK = 7 * 86_400;
const LONG = 10 * 365 * 86_400;

const seconds = (least, most) => ({ unit: "s", least, most, step: "any" });

/** [name, label, kinds of queue, { unit, least, most, kind, hint }] */
export const GROUPS = [
  [
    "Delivery",
    [
      [
        "leaseTime",
        "Lease time",
        "both",
        {
          ...seconds(0.001, WEEK),
          hint: "How long a consumer may work before it is given to another.",
        },
      ],
      [
        "retryLimit",
        "Retry limit",
        "ordered",
        { least: 0, most: 1_000_000, hint: "Redeliveries of what failed, before it is dead." },
      ],
      ["retryDelay", "Retry delay", "ordered", { unit: "ms", least: 0, most: WEEK * 1000 }],
      [
        "delayedProcessing",
        "Delayed processing",
        "ordered",
        { ...seconds(0, LONG), hint: "Deliver nothing younger. 0 is off." },
      ],
      [
        "windowBuffer",
        "Window buffer",
        "ordered",
        { ...seconds(0, LONG), hint: "Deliver a partition when it was quiet this long. 0 is off." },
      ],
      [
        "maxWaitTimeSeconds",
        "Longest wait",
        "ordered",
        { ...seconds(0, LONG), hint: "What is older is dead. 0 is off." },
      ],
      ["maxAttempts", "Attempts", "work", { least: 1, most: 1_000_000 }],
      [
        "backoffBase",
        "Backoff base",
        "work",
        {
          least: 0,
          most: 1000,
          step: "any",
          hint: "Pause after attempt n: base to the power n, in seconds.",
        },
      ],
      ["backoffCap", "Longest backoff", "work", seconds(0.001, LONG)],
      [
        "backoffJitter",
        "Backoff jitter",
        "work",
        {
          least: 0,
          most: 1,
          step: "any",
          hint: "Part of a pause that is added at random, 0 to 1.",
        },
      ],
      [
        "expireTimeout",
        "Expires after",
        "work",
        { ...seconds(0, LONG), hint: "Not begun by then: dead. 0 is never." },
      ],
      ["defaultPriority", "Default priority", "work", { least: -1000, most: 1000 }],
    ],
  ],
  [
    "Size and retention",
    [
      [
        "maxSize",
        "Most pending",
        "both",
        {
          unit: "messages",
          least: 0,
          most: 2 ** 53 - 1,
          hint: "A push beyond it is refused. 0 is no limit.",
        },
      ],
      ["retentionEnabled", "Retention", "both", { kind: "switch", hint: "Remove what is old." }],
      [
        "retentionSeconds",
        "Keep for",
        "both",
        { ...seconds(0, LONG), hint: "Also if nobody consumed it. 0 is for ever." },
      ],
      [
        "completedRetentionSeconds",
        "Keep consumed for",
        "both",
        { ...seconds(0, LONG), hint: "0 is for ever." },
      ],
      [
        "retainUntilArchived",
        "Keep until archived",
        "ordered",
        { kind: "switch", hint: "Retention leaves what is not in the lake yet." },
      ],
    ],
  ],
  [
    "Dead and secret",
    [
      [
        "deadLetterQueue",
        "Keep dead letters",
        "both",
        { kind: "switch", hint: "Off: the dead are dropped." },
      ],
      [
        "dlqAfterMaxRetries",
        "Dead after the last retry",
        "ordered",
        { kind: "switch", hint: "Off: retried for ever, and the partition stays blocked." },
      ],
      [
        "deadQueue",
        "Dead queue",
        "both",
        { kind: "name", hint: "Where the dead go, instead of the dead letters." },
      ],
      [
        "encryptionEnabled",
        "Encryption at rest",
        "both",
        { kind: "switch", hint: "Needs a key in the settings." },
      ],
      [
        "priority",
        "Priority of the queue",
        "both",
        { least: -1000, most: 1000, hint: "In pops across queues." },
      ],
    ],
  ],
];

/** Those that a queue of this kind has. */
export function optionsOf(kind) {
  return GROUPS.map(([title, all]) => [
    title,
    all.filter(([, , of]) => of === "both" || of === kind),
  ]);
}

/** What is wrong with a value as it was typed, or null. */
export function wrong(text, { least, most, step }) {
  const value = Number(text);
  if (text.trim() === "" || Number.isNaN(value)) return "This must be a number.";
  if (step !== "any" && !Number.isInteger(value)) return "This must be a whole number.";
  if (value < least || value > most) return `This must be between ${least} and ${most}.`;
  return null;
}
