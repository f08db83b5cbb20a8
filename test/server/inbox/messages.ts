/** Messages for tests of a store. */
import type { ChangeResult, Contents, InboxStore, NewMessage, StoreState } from '../../../server/inbox/store.ts'

export const NOW = 1_800_000_000_000

export function message(id: string, more: Partial<NewMessage> = {}): NewMessage {
  return {
    ...{ id, runtime: 'demo', lane: 'l', route: 'r', why: 'offline', received: NOW, expires: NOW + 1000, bytes: 12 },
    ...{ parts: 2, attempts: 0, failures: 0, refusals: 0, failedSince: 0, next: 0, reason: '' },
    ...{ dedupe: '', dedupeMs: 0, key: '', enc: '', caller: '' },
    ...more,
  }
}

export const bytes = (text: string): Uint8Array => new Uint8Array(Buffer.from(text))

export const append = (store: InboxStore, made: NewMessage, body = 'body'): Promise<ChangeResult> =>
  store.apply({ op: 'append', message: made, head: bytes('{}'), rest: bytes(body), at: made.received })

/** What the store had when it opened. */
export function contentsOf(store: InboxStore): Contents {
  let seen: StoreState | undefined
  store.onState = state => {
    seen = state
  }
  if (seen?.open !== true) throw new Error('the store is not open')
  return seen.contents
}
