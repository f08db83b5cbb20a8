/** Parses and formats the states in a store's answers. Throws for malformed ones, which then count as lost. */
import { EPOCHS_END, type InstanceState, type RuntimeState } from './directory.ts'

/** `[runtime, epoch, active, version, ms since its change, instance, "epoch replica ...", ...]`, all text. */
export function parseRuntimeState(text: string, nowMs: number): RuntimeState {
  const [runtime, epoch, active, version, ageMs, ...rest] = readList(text)
  const instances = new Map<string, InstanceState>()
  for (let i = 0; i < rest.length; i += 2) {
    const [held, ...replicas] = rest[i + 1]!.split(' ')
    const epoch = readEpoch(held)
    if (isOurs(rest[i]!)) instances.set(rest[i]!, { epoch, replicas: replicas.filter(isOurs) })
  }
  return {
    runtime: runtime!,
    epoch: readEpoch(epoch),
    active: isOurs(active!) ? active! : '',
    version: readNumber(version),
    instances,
    changedMs: nowMs - readNumber(ageMs),
  }
}

/**
 * Whether this can be the name of an instance, or of a replica (which is URL-escaped). No other names can be passed on. `scripts.ts`
 * has the same check.
 */
function isOurs(name: string): boolean {
  return /^[\w.~%!*'()-]{1,512}$/.test(name)
}

/** Most instances in one message, and the maximum size of one, as each instance may have 1,000 replicas. */
const MAX_INSTANCES_SENT = 16
export const MAX_RUNTIME_STATE_BYTES = 1_200_000

/** Writes a state for another replica, which reads it with {@link parseRuntimeState}. The active instance comes first. */
export function formatRuntimeState(state: RuntimeState, nowMs: number): string {
  const { runtime, epoch, active, version, instances, changedMs } = state
  const list = [runtime, epoch, active, version, Math.max(0, Math.floor(nowMs - changedMs))].map(String)
  const told = [...instances].sort(([, a], [, b]) => b.epoch - a.epoch).slice(0, MAX_INSTANCES_SENT)
  let bytes = 0
  for (const [name, { epoch, replicas }] of told) {
    const held = [epoch, ...replicas].join(' ')
    bytes += name.length + held.length + SEPARATORS_BYTES
    if (bytes > MAX_RUNTIME_STATE_BYTES - HEAD_BYTES) break
    list.push(name, held)
  }
  return JSON.stringify(list)
}

/** Quotes and commas of an instance's two texts. */
const SEPARATORS_BYTES = 6
const HEAD_BYTES = 1000

export interface ReplicaLease {
  readonly name: string
  /** What is left of its lease. Below 0, it is dead. */
  readonly leftMs: number
  /** `host:port` of its listener for other replicas. Empty if it has none. */
  readonly address: string
}

export interface Renewal {
  /** How long ago the directory began to remember. */
  readonly ageMs: number
  /** The lease had ended or was forgotten, so others may have treated our sessions as gone. */
  readonly lapsed: boolean
  readonly replicas: readonly ReplicaLease[]
}

/** Longer names and addresses cannot be ours, and are ignored. */
const MAX_NAME_CHARS = 512

export function parseRenewal(text: string): Renewal {
  const [ageMs, lapsed, ...rest] = readList(text)
  const replicas: ReplicaLease[] = []
  for (let i = 0; i + 2 < rest.length; i += 3) {
    const [name, left, address] = rest.slice(i, i + 3) as [string, string, string]
    if (name.length > MAX_NAME_CHARS || address.length > MAX_NAME_CHARS || !/^-?\d+$/.test(left)) continue
    replicas.push({ name, leftMs: Number(left), address })
  }
  return { ageMs: readNumber(ageMs), lapsed: lapsed === '1', replicas }
}

function readList(text: string): string[] {
  const list: unknown = JSON.parse(text)
  if (Array.isArray(list) && list.every(item => typeof item === 'string')) return list
  throw new TypeError('expected a list of texts')
}

function readEpoch(text: string | undefined): number {
  const epoch = readNumber(text)
  if (epoch < EPOCHS_END) return epoch
  throw new TypeError(`there is no epoch ${text}`)
}

function readNumber(text: string | undefined): number {
  const value = Number(text)
  if (text !== undefined && /^\d+$/.test(text) && Number.isSafeInteger(value)) return value
  throw new TypeError(`expected a number, not ${text}`)
}
