import type { Layer } from '../../protocol/layer.ts'
import type { Inbox } from './inbox.ts'

/** The layer that keeps webhooks that cannot be delivered at once. Without an inbox, it adds nothing. */
export function inbox(of: Inbox | undefined): Layer {
  return of === undefined ? next => next : of.layer
}
