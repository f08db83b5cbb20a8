/** An inbox store in memory that fails as a test says: what it accepted stays, as on a disk. */
import {
  type Change,
  type ChangeResult,
  type Contents,
  type Count,
  type Filter,
  type InboxStore,
  type LaneCount,
  type Message,
  type NewMessage,
  REFUSED,
  type SharedStore,
  StoreError,
  type SweepResult,
} from '../../../server/inbox/store.ts'

type Kept = Message & Pick<NewMessage, 'dedupe' | 'dedupeMs'>

/** What is on the disk, over all starts. */
export class MemoryDisk {
  readonly messages: Kept[] = []
  readonly parts = new Map<string, Uint8Array>()
  readonly rules = new Map<string, { readonly rules: string; readonly seen: number }>()
  /** How the next change ends: `lost` leaves nothing, `unsure` is done but reported as failed. */
  fault: () => 'none' | 'lost' | 'unsure' = () => 'none'

  counts(): Count[] {
    const counts = new Map<string, { -readonly [K in keyof Count]: Count[K] }>()
    for (const { runtime, state, bytes, received, reason } of this.messages) {
      const key = `${runtime} ${state}`
      const none = { messages: 0, bytes: 0, refused: 0, refusedBytes: 0 }
      const count = counts.get(key) ?? { runtime, state, oldest: received, ...none }
      count.messages++
      count.bytes += bytes
      if (reason.startsWith(REFUSED)) {
        count.refused++
        count.refusedBytes += bytes
      }
      counts.set(key, count)
    }
    return [...counts.values()]
  }

  lanes(): LaneCount[] {
    const lanes = new Map<string, { runtime: string; lane: string; messages: number }>()
    for (const { runtime, lane, state } of this.messages) {
      if (state !== 'waiting') continue
      const count = lanes.get(lane) ?? { runtime, lane, messages: 0 }
      lanes.set(lane, { ...count, messages: count.messages + 1 })
    }
    return [...lanes.values()]
  }

  apply(change: Change): ChangeResult {
    switch (change.op) {
      case 'append':
        return this.#append(change)
      case 'part':
        this.parts.set(`${change.id} ${change.n}`, change.bytes)
        return { status: 'done', id: change.id }
      case 'update': {
        const at = this.messages.findIndex(({ id, state }) => id === change.id && state !== 'delivered')
        const changed = change.set.state === undefined ? {} : { changed: change.at }
        if (at >= 0) this.messages[at] = { ...this.messages[at]!, ...change.set, ...changed }
        return { status: at >= 0 ? 'done' : 'absent', id: change.id }
      }
      case 'drop': {
        const at = this.messages.findIndex(({ id, state }) => id === change.id && state === (change.state ?? state))
        const [dropped] = at >= 0 ? this.messages.splice(at, 1) : []
        return dropped === undefined ? { status: 'absent', id: change.id } : { status: 'done', id: change.id, dropped }
      }
      case 'forget':
        for (const key of this.parts.keys()) if (key.startsWith(`${change.id} `)) this.parts.delete(key)
        return { status: 'done', id: change.id }
      case 'rules':
        this.rules.set(change.runtime, { rules: change.rules, seen: change.at })
        return { status: 'done', id: change.runtime }
      default:
        return { status: 'done', id: '' }
    }
  }

  #append({ message, head, rest }: Extract<Change, { op: 'append' }>): ChangeResult {
    const { runtime, dedupe, id, parts } = message
    const isSame = (one: Kept) => one.runtime === runtime && one.dedupe === dedupe && one.state === 'waiting'
    const same = dedupe === '' ? undefined : this.messages.find(isSame)
    if (same !== undefined) return { status: 'duplicate', id: same.id }
    this.messages.push({ ...message, state: 'waiting', changed: message.received })
    this.parts.set(`${id} 0`, head)
    if (rest.length > 0) this.parts.set(`${id} ${parts - 1}`, rest)
    return { status: 'stored', id }
  }
}

/** One start of a server over the disk, which is reopened after each failure; after `kill` it can reach nothing. */
export class MemoryInboxStore implements InboxStore {
  readonly shared: SharedStore | undefined = undefined
  readonly #disk: MemoryDisk
  #killed = false
  #onState: InboxStore['onState']

  constructor(disk: MemoryDisk) {
    this.#disk = disk
  }

  kill(): void {
    this.#killed = true
  }

  get onState(): InboxStore['onState'] {
    return this.#onState
  }

  set onState(listener: InboxStore['onState']) {
    this.#onState = listener
    this.#open()
  }

  #open(): void {
    const rules = [...this.#disk.rules].map(([runtime, stored]) => ({ runtime, ...stored }))
    const contents: Contents = { counts: this.#disk.counts(), lanes: this.#disk.lanes(), rules, paused: [] }
    this.#onState?.({ open: true, contents, setAside: undefined })
  }

  async #work<Value>(work: () => Value): Promise<Value> {
    await Promise.resolve()
    if (this.#killed) return await new Promise(() => {})
    const fault = this.#disk.fault()
    if (fault === 'none') return work()
    if (fault === 'unsure') work()
    const error = new StoreError('away', fault === 'lost' ? 'the disk failed' : 'the disk failed behind the write')
    this.#onState?.({ open: false, problem: error.message })
    this.#open()
    throw error
  }

  apply(change: Change): Promise<ChangeResult> {
    return this.#work(() => this.#disk.apply(change))
  }

  next(runtime: string, lane: string, limit: number): Promise<Message[]> {
    const fits = (one: Message) => one.runtime === runtime && one.lane === lane && one.state === 'waiting'
    return this.#work(() => this.#disk.messages.filter(fits).slice(0, limit))
  }

  part(id: string, n: number): Promise<Uint8Array | undefined> {
    return this.#work(() => this.#disk.parts.get(`${id} ${n}`))
  }

  list({ id = '', reason = '', limit }: Filter): Promise<Message[]> {
    const fits = (one: Message) => one.id.startsWith(id) && one.reason.startsWith(reason)
    return this.#work(() => this.#disk.messages.filter(fits).slice(0, limit))
  }

  sweep(): Promise<SweepResult> {
    return this.#work(() => ({ expired: [], more: false }))
  }

  counts(): Promise<Count[]> {
    return this.#work(() => this.#disk.counts())
  }

  lanes(): Promise<LaneCount[]> {
    return this.#work(() => this.#disk.lanes())
  }

  stats() {
    const numbers = { commits: 0, commitSeconds: 0, commitMaxSeconds: 0 }
    return { open: !this.#killed, problem: undefined, setAside: undefined, ...numbers }
  }

  close(): Promise<void> {
    this.kill()
    return Promise.resolve()
  }
}
