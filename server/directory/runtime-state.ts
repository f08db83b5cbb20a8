/** Reads and writes what the scripts answer. Anything odd in it throws, as if the entry were lost. */
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

/** Whether it can be the name of an instance, or of a replica, which is escaped for URLs. No other name can be passed on. */
function isOurs(name: string): boolean {
  return /^[\w.~%!*'()-]{1,512}$/.test(name)
}

/** Most instances in one message, and its longest text: each instance may have 1,000 replicas. */
const MAX_TOLD = 16
export const MAX_RUNTIME_STATE_BYTES = 1_200_000

/** Writes a state for another replica, which reads it with {@link parseRuntimeState}. The active instance comes first. */
export function formatRuntimeState(state: RuntimeState, nowMs: number): string {
  const { runtime, epoch, active, version, instances, changedMs } = state
  const list = [runtime, epoch, active, version, Math.max(0, Math.floor(nowMs - changedMs))].map(String)
  const told = [...instances].sort(([, a], [, b]) => b.epoch - a.epoch).slice(0, MAX_TOLD)
  let bytes = 0
  for (const [name, { epoch, replicas }] of told) {
    const held = [epoch, ...replicas].join(' ')
    bytes += name.length + held.length + SEPARATORS_BYTES
    if (bytes > MAX_RUNTIME_STATE_BYTES - HEAD_BYTES) break
    list.push(name, held)
  }
  return JSON.stringify(list)
}

/** Around two texts of the list, and before the first of an instance. */
const SEPARATORS_BYTES = 6
const HEAD_BYTES = 1000

export interface ReplicaLease {
  readonly name: string
  /** What is left of its lease; below 0, it is dead. */
  readonly leftMs: number
  /** `host:port` of its listener for other replicas; empty if it has none. */
  readonly address: string
}

export interface Renewal {
  /** Age of the directory's memory. */
  readonly ageMs: number
  /** The lease had ended or was forgotten, so others may have taken our sessions for gone. */
  readonly lapsed: boolean
  readonly replicas: readonly ReplicaLease[]
}

/** Entries with a longer name or address are not ours. */
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
