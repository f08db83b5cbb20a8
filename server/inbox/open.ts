import type { Opened } from '../opened.ts'
import type { ResolvedServerOptions } from '../options.ts'
import type { InboxStore } from './store.ts'

/** The store of the inbox, where there is one; a server without loads nothing of it. Rejects with a TypeError. */
export async function openStore(settings: ResolvedServerOptions, opened: Opened): Promise<InboxStore | undefined> {
  if (settings.inbox === undefined) return undefined
  const { logger, inbox, clock } = settings
  const { place, limits } = inbox
  if (place.kind === 'postgres') {
    const { openPostgres } = await import('./postgres.ts')
    return opened.add(await openPostgres({ ...place, logger }, clock))
  }
  const { openSqlite } = await import('./sqlite.ts')
  return opened.add(await openSqlite({ path: place.path, minFreeBytes: limits.diskFreeBytes, logger }, clock))
}
