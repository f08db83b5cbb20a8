/**
 * The kinds of streams. Streams of every kind begin with a preamble, are opened by the server (or by another replica, through
 * the server that has the session), are answered by the client, and count against `maxStreams` and `backlog` of
 * `SESSION_LIMITS`. The row of a kind defines how it differs. SPEC.md has the same table.
 */

/** What a stream carries: its first byte. */
export const STREAM_KIND = { exchange: 1, upgrade: 2, raw: 3 } as const
/** A value of {@link STREAM_KIND}. */
export type StreamKind = (typeof STREAM_KIND)[keyof typeof STREAM_KIND]

export interface StreamRules {
  /** False if the kind is reserved, and refused as `unsupported`. */
  readonly answered: boolean
  /** The only method that its request may have. Absent: any but CONNECT. */
  readonly method?: string
  /** Whether its request has a body. */
  readonly body: boolean
  /** Whether a 101 switches it to raw bytes. From then on, the directions end separately. */
  readonly switches: boolean
}

/** A row for each kind. */
export const STREAM_RULES: Readonly<Record<StreamKind, StreamRules>> = {
  [STREAM_KIND.exchange]: { answered: true, body: true, switches: false },
  [STREAM_KIND.upgrade]: { answered: true, method: 'GET', body: false, switches: true },
  [STREAM_KIND.raw]: { answered: false, body: false, switches: false },
}

/** The rules of the kind with this number; undefined if there is none. */
export function streamRules(kind: number): StreamRules | undefined {
  return STREAM_RULES[kind as StreamKind]
}
