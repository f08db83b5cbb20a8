import type { Opened } from '../opened.ts'
import type { ResolvedServerOptions } from '../options.ts'
import type { InboxMac } from './mac.ts'
import type { ResolvedInbox } from './options.ts'
import type { InboxStore } from './store.ts'

/** The opened store, and the MACs if the settings ask for them. */
export interface OpenedInbox {
  readonly store: InboxStore
  readonly mac: InboxMac | undefined
}

/** Opens the inbox's store, if the settings have one. Otherwise loads none of its code. Rejects with a TypeError. */
export async function openStore(settings: ResolvedServerOptions, opened: Opened): Promise<OpenedInbox | undefined> {
  if (settings.inbox === undefined) return undefined
  const { mac: from } = settings.inbox
  const mac = from && opened.add(await (await import('./mac.ts')).InboxMac.open(from, settings.logger))
  return { store: await openPlace(settings, settings.inbox, opened), mac }
}

async function openPlace(
  { logger }: ResolvedServerOptions,
  { place, limits }: ResolvedInbox,
  opened: Opened,
): Promise<InboxStore> {
  if (place.kind === 'postgres') {
    const { openPostgres } = await import('./postgres.ts')
    return opened.add(await openPostgres({ ...place, logger }))
  }
  const { openSqlite } = await import('./sqlite.ts')
  return opened.add(await openSqlite({ path: place.path, minFreeBytes: limits.diskFreeBytes, logger }))
}
