/**
 * The rules of epochs, on one runtime's record. `scripts.ts` has the same rules in Lua, for Redis. A test compares the two.
 *
 * The instance that holds the latest epoch is active. It stays in the record when it loses all its sessions, so that it can
 * come back to its epoch. If a standby is live by then, that one takes over with a new epoch.
 */
import { MAX_INSTANCES, type RuntimeState } from './directory.ts'
import type { DirectoryChange } from './store.ts'

export interface RuntimeRecord {
  epoch: number
  active: string
  /** A forgotten epoch has come to light. Until this time, nobody replaces the active instance. */
  lostUntilMs: number
  version: number
  readonly instances: Map<string, { epoch: number; readonly replicas: Set<string> }>
}

/** A replica has live sessions of an instance. */
interface Entrance {
  readonly instance: string
  readonly replica: string
  /** Epoch that the instance last held. 0 for none. */
  readonly presented: number
  /** The latest epoch that the replica knows, and its holder, in case the directory forgot. */
  readonly seen: number
  readonly seenActive: string
}

/** The time of a change, and how long forgotten epochs may take to come to light. */
export interface Now {
  readonly nowMs: number
  readonly leaseMs: number
  /** The directory began to remember less than a lease ago. Replicas may not have written back what they hold. */
  readonly young: boolean
}

export function newRecord(): RuntimeRecord {
  return { epoch: 0, active: '', lostUntilMs: 0, version: 0, instances: new Map() }
}

/** Applies a change. First removes what dead replicas left behind. `replica` counts as alive. */
export function applyChange(
  record: RuntimeRecord,
  { operation, instance, presented, seen, seenActive }: DirectoryChange,
  replica: string,
  isAlive: (replica: string) => boolean,
  now: Now,
): void {
  for (const { replicas } of record.instances.values()) {
    for (const each of replicas) if (each !== replica && !isAlive(each)) replicas.delete(each)
  }
  if (operation === 'enter') {
    enter(record, { instance, replica, presented, seen, seenActive }, now)
    return
  }
  remember(record, seen, seenActive, now)
  if (operation === 'leave') record.instances.get(instance)?.replicas.delete(replica)
  settle(record, now)
}

export function enter(record: RuntimeRecord, entrance: Entrance, now: Now): void {
  const { instance, replica, presented, seen, seenActive } = entrance
  remember(record, seen, seenActive, now)
  const holding = record.instances.get(instance) ?? { epoch: 0, replicas: new Set<string>() }
  record.instances.set(instance, holding)
  holding.replicas.add(replica)
  holding.epoch = Math.max(holding.epoch, presented)
  if (holding.epoch === 0) grant(record, instance, now)
  else if (holding.epoch === record.epoch && record.active === '') record.active = instance
  else remember(record, holding.epoch, instance, now)
  forget(record.instances, record.active, ({ replicas }) => replicas.size > 0)
  settle(record, now)
}

/** A replica has no live session of the instance any more. */
export function leave(record: RuntimeRecord, instance: string, replica: string, now: Now): void {
  record.instances.get(instance)?.replicas.delete(replica)
  settle(record, now)
}

/** If the active instance has no live session, the one with the highest epoch that has one takes over. */
function settle(record: RuntimeRecord, now: Now): void {
  if ((record.instances.get(record.active)?.replicas.size ?? 0) > 0 || now.nowMs < record.lostUntilMs) return
  let next: string | undefined
  for (const [name, { epoch, replicas }] of record.instances) {
    if (replicas.size === 0) continue
    const best = next === undefined ? -1 : record.instances.get(next)!.epoch
    if (epoch > best || (epoch === best && name > next!)) next = name
  }
  if (next !== undefined) grant(record, next, now)
}

function grant(record: RuntimeRecord, instance: string, { young }: Now): void {
  if (young) return
  record.epoch++
  record.instances.get(instance)!.epoch = record.epoch
  record.active = instance
}

function remember(record: RuntimeRecord, epoch: number, active: string, { nowMs, leaseMs }: Now): void {
  if (epoch <= record.epoch) return
  record.epoch = epoch
  record.active = active
  record.lostUntilMs = nowMs + leaseMs
}

/** Forgets surplus instances that have left, those with the lowest epochs first. */
export function forget<Holding extends { readonly epoch: number }>(
  instances: Map<string, Holding>,
  active: string,
  isLive: (holding: Holding) => boolean,
): void {
  while (instances.size > MAX_INSTANCES) {
    let oldest: string | undefined
    for (const [name, holding] of instances) {
      if (isLive(holding) || name === active) continue
      const least = oldest === undefined ? Number.POSITIVE_INFINITY : instances.get(oldest)!.epoch
      if (holding.epoch < least || (holding.epoch === least && name < oldest!)) oldest = name
    }
    if (oldest === undefined) return
    instances.delete(oldest)
  }
}

export function stateOf(runtime: string, record: RuntimeRecord, changedMs: number): RuntimeState {
  const { epoch, active, version } = record
  const instances = new Map(
    [...record.instances].map(([name, { epoch, replicas }]) => [name, { epoch, replicas: [...replicas] }]),
  )
  return { runtime, epoch, active, version, instances, changedMs }
}
