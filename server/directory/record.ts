/**
 * The rules of epochs, on one runtime's record. `scripts.ts` says the same in Lua, for Redis; a test holds the two equal.
 *
 * The instance that holds the latest epoch is active. It stays recorded when it loses all its sessions, so that it comes
 * back to the epoch that it had; but if a standby is live then, that one takes over with a new epoch.
 */
import { MAX_INSTANCES, type Standing } from './directory.ts'

export interface RuntimeRecord {
  epoch: number
  active: string
  version: number
  readonly instances: Map<string, { epoch: number; readonly replicas: Set<string> }>
}

export type Change = (record: RuntimeRecord) => void

export function newRecord(): RuntimeRecord {
  return { epoch: 0, active: '', version: 0, instances: new Map() }
}

/**
 * A replica has live sessions of an instance, which presents the epoch that it last held (0: none). `seen` is the latest
 * epoch of the runtime that the replica knows of: a directory that lost its memory learns from it.
 */
export function enter(record: RuntimeRecord, instance: string, replica: string, presented: number, seen: number): void {
  const latest = Math.max(record.epoch, seen)
  const holding = record.instances.get(instance) ?? { epoch: 0, replicas: new Set<string>() }
  holding.epoch = Math.max(holding.epoch, presented)
  if (holding.epoch === 0) holding.epoch = latest + 1
  holding.replicas.add(replica)
  record.instances.set(instance, holding)
  record.epoch = Math.max(latest, holding.epoch)
  if (holding.epoch > latest || (holding.epoch === latest && record.active === '')) record.active = instance
  forget(record)
  settle(record, false)
}

/** A replica has no live session of the instance any more. */
export function leave(record: RuntimeRecord, instance: string, replica: string): void {
  record.instances.get(instance)?.replicas.delete(replica)
  settle(record, false)
}

/**
 * The active instance is gone: of those that are live the one with the highest epoch takes over. Nobody does while the
 * active one is not known (the directory lost it), unless `anyway`: it may be about to be written back.
 */
export function settle(record: RuntimeRecord, anyway: boolean): void {
  if (record.active === '' && !anyway) return
  if ((record.instances.get(record.active)?.replicas.size ?? 0) > 0) return
  let next: string | undefined
  for (const [name, { epoch, replicas }] of record.instances) {
    if (replicas.size === 0) continue
    const best = next === undefined ? -1 : record.instances.get(next)!.epoch
    if (epoch > best || (epoch === best && name > next!)) next = name
  }
  if (next === undefined) return
  record.epoch++
  record.instances.get(next)!.epoch = record.epoch
  record.active = next
}

function forget(record: RuntimeRecord): void {
  while (record.instances.size > MAX_INSTANCES) {
    let oldest: string | undefined
    for (const [name, { epoch, replicas }] of record.instances) {
      if (replicas.size > 0 || name === record.active) continue
      if (oldest === undefined || epoch < record.instances.get(oldest)!.epoch) oldest = name
    }
    if (oldest === undefined) return
    record.instances.delete(oldest)
  }
}

export function standingOf(runtime: string, record: RuntimeRecord, changedMs: number): Standing {
  const { epoch, active, version } = record
  const instances = new Map(
    [...record.instances].map(([name, { epoch, replicas }]) => [name, { epoch, replicas: [...replicas] }]),
  )
  return { runtime, epoch, active, version, instances, changedMs }
}
