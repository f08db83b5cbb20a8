/**
 * Loaded into a process before the command (`node --expose-gc --import`). On a socket of its own it tells everybody who connects what
 * the process holds, and how much of that its ledgers count.
 */
import { rmSync } from 'node:fs'
import { createServer } from 'node:net'
import { isMainThread } from 'node:worker_threads'
import { createBufferBudget } from '../../../protocol/base/budget.ts'
import { ReplayBudget } from '../../../protocol/base/replay-budget.ts'
import { SocketTurns } from '../../../protocol/base/socket-turns.ts'
import { RoomShare } from '../../../router/handler/room.ts'
import { Hold } from '../../../server/edge/hold.ts'
import { BodyBudget } from '../../../server/inbox/kept-body.ts'
import { type Holding, probeOf } from './holding.ts'

declare const gc: () => void

let counted = 0

/** What counts in a budget counts in those above it, too. The highest one hears of it last. */
let latest: unknown
const budgets = Object.getPrototypeOf(createBufferBudget())
for (const [name, sign] of [
  ['take', 1],
  ['release', -1],
] as const) {
  const own = budgets[name]
  budgets[name] = function (bytes: number) {
    latest = this
    own.call(this, bytes)
    if (latest === this) counted += sign * bytes
  }
}

const { add } = BodyBudget.prototype
BodyBudget.prototype.add = function (payers, bytes) {
  counted += bytes
  add.call(this, payers, bytes)
}

/** Ledgers that were used, with what each of them counts. */
const ledgers = new Map<object, () => number>()

const { add: keep } = ReplayBudget.prototype
ReplayBudget.prototype.add = function (body, bytes) {
  ledgers.set(this, () => this.used)
  keep.call(this, body, bytes)
}

const { enter } = Hold.prototype
Hold.prototype.enter = function (...waiter) {
  ledgers.set(this, () => this.bytes)
  return enter.apply(this, waiter)
}

const { hold } = RoomShare.prototype
RoomShare.prototype.hold = function (bytes) {
  const before = this.bytes
  const fits = hold.call(this, bytes)
  counted += this.bytes - before
  return fits
}

let reads = 0
const { took } = SocketTurns.prototype
SocketTurns.prototype.took = function (since) {
  reads++
  took.call(this, since)
}

async function holding(): Promise<Holding> {
  // Buffers are freed in the turn after the one that found them dead.
  for (let i = 0; i < 3; i++) {
    gc()
    await new Promise(resolve => setImmediate(resolve))
  }
  const { heapUsed, external } = process.memoryUsage()
  const inLedgers = [...ledgers.values()].reduce((sum, count) => sum + count(), 0)
  return { live: heapUsed + external, counted: counted + inLedgers, reads }
}

/** Node loads it into the threads of the process, too. */
if (isMainThread) {
  const path = probeOf(process.pid)
  /** Another process with this number may have left it. */
  const remove = () => rmSync(path, { force: true })
  remove()
  createServer(async asking => asking.end(JSON.stringify(await holding())))
    .listen(path)
    .unref()
  process.once('exit', remove)
}
