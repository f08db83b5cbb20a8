/** Names of control endpoints to addresses, beginning with another one each turn. */
import { type LookupAddress, lookup as systemLookup } from 'node:dns'
import { isIP, type LookupFunction } from 'node:net'
import { followed, guardWith } from '../../protocol/base/guard.ts'

/** If the last answer is known, a resolver gets only this long for a new one. */
const PATIENCE_MS = 1000
/** One that has not answered in this time will not: it is asked again. The system's own takes up to 30 s. */
const LOST_MS = 35_000
/** Names that are remembered; a client has few. */
const MAX_NAMES = 64

/**
 * Asks for one name once at a time. What it said last is used again while the resolver does not answer: it is often
 * behind the same path as the server, and slower to come back.
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

  /** How many machines the name may lead to: one has often an address of each family. */
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
    const tired = new Promise<readonly LookupAddress[]>(resolve => {
      timer = setTimeout(resolve, PATIENCE_MS, known)
    })
    try {
      return await Promise.race([asked.catch(error => (isPassing(error) ? known : Promise.reject(error))), tired])
    } finally {
      clearTimeout(timer)
    }
  }

  #ask(host: string): Promise<readonly LookupAddress[]> {
    const under = this.#asked.get(host)
    if (under !== undefined) return under
    const asked = this.#find(host).finally(() => this.#asked.delete(host))
    this.#asked.set(host, asked)
    asked.catch(() => {})
    return asked
  }

  #find(host: string): Promise<readonly LookupAddress[]> {
    return new Promise((resolve, reject) => {
      const lost = setTimeout(reject, LOST_MS, noAnswer(host)).unref()
      const heard = (error: Error | null, answer: string | LookupAddress[], family?: number) => {
        clearTimeout(lost)
        if (error) return reject(error)
        const all = Array.isArray(answer) ? answer : [{ address: answer, family: family ?? isIP(answer) }]
        // An embedder's resolver may say anything, and a text that is not an address would be dialled as this machine.
        const addresses = all.filter(entry => isIP(entry?.address) !== 0)
        if (addresses.length === 0) return reject(noAddress(host))
        this.#remember(host, addresses)
        resolve(addresses)
      }
      const asked: unknown = this.#lookup(host, { all: true }, guardWith(reject)(heard))
      followed(asked, reject)
    })
  }

  /** Whichever name was answered longest ago is forgotten first. */
  #remember(host: string, addresses: readonly LookupAddress[]): void {
    this.#known.delete(host)
    this.#known.set(host, addresses)
    const [oldest] = this.#known.keys()
    if (this.#known.size > MAX_NAMES && oldest !== undefined) this.#known.delete(oldest)
  }
}

/** The resolver itself did not answer, which says nothing of the name. */
function isPassing(error: NodeJS.ErrnoException): boolean {
  return error.code !== 'ENOTFOUND'
}

function noAnswer(host: string): Error {
  return Object.assign(new Error(`no resolver answered for ${host}`), { code: 'EAI_AGAIN' })
}

function noAddress(host: string): Error {
  return Object.assign(new Error(`${host} has no address`), { code: 'ENOTFOUND' })
}
