/** Resolves the names of control endpoints, and begins with a different address each turn. */
import { type LookupAddress, lookup as systemLookup } from 'node:dns'
import { isIP, type LookupFunction } from 'node:net'
import { followed, guardWith } from '../../protocol/base/guard.ts'

/** How long to wait for a new answer if an earlier one is known. */
const PATIENCE_MS = 1000
/** A resolver that has not answered by then never will, and is asked again. That of the system takes up to 30 s. */
const LOST_MS = 35_000
/** Most names to remember. A client has few. */
const MAX_NAMES = 64

/**
 * Asks for each name only once at a time. While the resolver does not answer, the last answer is used: the resolver is often
 * behind the same network path as the server, and slower to come back.
 */
export class Resolver {
  readonly #lookup: LookupFunction
  readonly #known = new Map<string, readonly LookupAddress[]>()
  readonly #asked = new Map<string, Promise<readonly LookupAddress[]>>()

  constructor(lookup: LookupFunction | undefined) {
    this.#lookup = lookup ?? (systemLookup as LookupFunction)
  }

  /** Rejects with the resolver's error. Names under `localhost` are loopback (RFC 6761), whatever the system knows. */
  async resolve(host: string, turn = 0): Promise<readonly LookupAddress[]> {
    const family = isIP(host)
    if (family !== 0) return [{ address: host, family }]
    if (host.endsWith('.localhost')) return [{ address: '127.0.0.1', family: 4 }]
    const addresses = await this.#patiently(host)
    const first = turn % addresses.length
    return [...addresses.slice(first), ...addresses.slice(0, first)]
  }

  /** How many machines the name may stand for. A machine often has an address of each family. */
  machines(host: string): number {
    const addresses = this.#known.get(host) ?? []
    const sixes = addresses.filter(({ family }) => family === 6).length
    return Math.max(1, sixes, addresses.length - sixes)
  }

  async #patiently(host: string): Promise<readonly LookupAddress[]> {
    const known = this.#known.get(host)
    const asked = this.#ask(host)
    if (known === undefined) return await asked
    let timer: NodeJS.Timeout | undefined
    const impatient = new Promise<readonly LookupAddress[]>(resolve => {
      timer = setTimeout(resolve, PATIENCE_MS, known)
    })
    try {
      return await Promise.race([asked.catch(error => (isTemporary(error) ? known : Promise.reject(error))), impatient])
    } finally {
      clearTimeout(timer)
    }
  }

  #ask(host: string): Promise<readonly LookupAddress[]> {
    const pending = this.#asked.get(host)
    if (pending !== undefined) return pending
    const asked = this.#find(host).finally(() => this.#asked.delete(host))
    this.#asked.set(host, asked)
    asked.catch(() => {})
    return asked
  }

  #find(host: string): Promise<readonly LookupAddress[]> {
    return new Promise((resolve, reject) => {
      const lost = setTimeout(reject, LOST_MS, noAnswer(host)).unref()
      const answered = (error: Error | null, answer: string | LookupAddress[], family?: number) => {
        clearTimeout(lost)
        if (error) return reject(error)
        const all = Array.isArray(answer) ? answer : [{ address: answer, family: family ?? isIP(answer) }]
        // An embedder's resolver may return anything, and a string that is not an address would be dialled as this machine.
        const addresses = all.filter(entry => isIP(entry?.address) !== 0)
        if (addresses.length === 0) return reject(noAddress(host))
        this.#remember(host, addresses)
        resolve(addresses)
      }
      const asked: unknown = this.#lookup(host, { all: true }, guardWith(reject)(answered))
      followed(asked, reject)
    })
  }

  /** Forgets the name with the oldest answer first. */
  #remember(host: string, addresses: readonly LookupAddress[]): void {
    this.#known.delete(host)
    this.#known.set(host, addresses)
    const [oldest] = this.#known.keys()
    if (this.#known.size > MAX_NAMES && oldest !== undefined) this.#known.delete(oldest)
  }
}

/** Whether the resolver itself failed, which says nothing about the name. */
function isTemporary(error: NodeJS.ErrnoException): boolean {
  return error.code !== 'ENOTFOUND'
}

function noAnswer(host: string): Error {
  return Object.assign(new Error(`no resolver answered for ${host}`), { code: 'EAI_AGAIN' })
}

function noAddress(host: string): Error {
  return Object.assign(new Error(`${host} has no address`), { code: 'ENOTFOUND' })
}
