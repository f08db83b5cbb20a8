/**
 * Connections that a target leaves unanswered. Some servers have a process for each connection, and only so many (Apache's prefork). While
 * those wait at idle connections, a request on a new connection waits for one of them. So if one that was sent a while later has been
 * answered before, its connection ends, and so does one that has been idle for a while. Servers that are just slow look alike, so only so
 * many end: a burst, and a long-run rate per second.
 */
import { TokenBucket } from '../../protocol/base/token-bucket.ts'

const UNANSWERED_MS = 1_000
const ROOM_BURST = 64
const ROOMS_PER_SECOND = 20

/** A connection with its first request, or a TLS handshake. */
interface Unanswered {
  readonly responseStarted: boolean
  /** When it was connected. */
  readonly openedAt: number
  /** How many of those that may end it takes. */
  readonly rooms: number
}

export class UnansweredConnections {
  /** For which no other has ended, the oldest first. */
  readonly #waiting = new Set<Unanswered>()
  readonly #rooms = new TokenBucket(ROOM_BURST, ROOMS_PER_SECOND)

  add(connection: Unanswered): void {
    this.#waiting.add(connection)
  }

  delete(connection: Unanswered): void {
    this.#waiting.delete(connection)
  }

  /** Whether an idle connection should end for one that was unanswered for too long at this time. */
  needsRoom(at: number): boolean {
    for (const connection of this.#waiting) {
      if (!connection.responseStarted) {
        const isDue = at >= connection.openedAt + UNANSWERED_MS && this.#rooms.take(undefined, connection.rooms)
        if (isDue) this.#waiting.delete(connection)
        return isDue
      }
      this.#waiting.delete(connection)
    }
    return false
  }
}
