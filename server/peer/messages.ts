/** What replicas say to each other beside the streams: JSON, one message each. Unknown types are ignored. */
export type PeerMessage =
  /** First, from both ends. */
  | { readonly type: 'replica'; readonly name: string }
  /** The end that accepted tells of an epoch that it was granted, or of what it presumes; see `formatStanding`. */
  | { readonly type: 'standing'; readonly standing: string }
  /** Have you told all? `whole`: tell everything that you know first. */
  | { readonly type: 'ask'; readonly number: number; readonly whole: boolean }
  | { readonly type: 'told'; readonly number: number }
  /** The session behind a stream leaves: what would go on for ever is to be finished. */
  | { readonly type: 'leave'; readonly stream: number }
  /** The replica stops, and will be granted nothing any more. */
  | { readonly type: 'bye' }

export function parsePeerMessage(text: string): PeerMessage | undefined {
  let message: Record<string, unknown>
  try {
    message = JSON.parse(text) as Record<string, unknown>
  } catch {
    return undefined
  }
  const { type, name, standing, number, whole, stream } = message ?? {}
  switch (type) {
    case 'replica':
      return typeof name === 'string' ? { type, name } : undefined
    case 'standing':
      return typeof standing === 'string' ? { type, standing } : undefined
    case 'ask':
      return typeof number === 'number' ? { type, number, whole: whole === true } : undefined
    case 'told':
      return typeof number === 'number' ? { type, number } : undefined
    case 'leave':
      return typeof stream === 'number' ? { type, stream } : undefined
    case 'bye':
      return { type }
    default:
      return undefined
  }
}
