/** Talks to the admin listeners of running components. */
import { hostname, userInfo } from 'node:os'
import { type FoundFile, findRuntimeFiles, type RuntimeFile, readAdminToken } from '../admin/runtime-file.ts'
import type { Arguments } from './args.ts'
import type { Io } from './command.ts'
import { configurationError, EXIT, Failure, fileProblem, usageError } from './failure.ts'
import { beginsId, optionalFlag, readInput } from './options.ts'
import { plainText } from './plain-text.ts'
import { asRow, asRows, printable, type Row } from './table.ts'

/** Limits on the time and size of an answer. */
interface Bounds {
  readonly deadlineMs: number
  readonly maxBytes: number
}

const BOUNDS: Bounds = { deadlineMs: 15_000, maxBytes: 512 * 1024 * 1024 }

/** The admin listener of a component, and its token. */
export interface Endpoint {
  readonly url: string
  /** Undefined if it is not known. */
  readonly component?: string | undefined
  /** Throws a {@link Failure} if it cannot be read. */
  readonly token: () => string | undefined
}

/** The component of `--admin`, or all components of this user on this machine, optionally of one kind. */
export function findEndpoints(args: Arguments, io: Io, component?: RuntimeFile['component']): Endpoint[] {
  const files = findRuntimeFiles(io.environment)
  const admin = optionalFlag(args, 'admin')
  const tokenFile = optionalFlag(args, 'admin.token.file')
  const given = tokenFile === undefined ? undefined : plainToken(readInput(tokenFile, 'the admin token').trim())
  if (admin !== undefined) {
    const url = parseUrl(admin)
    const file = files.find(candidate => candidate.url === url)
    return [{ url, component: file?.component, token: () => given ?? (file && ownToken(file)) }]
  }
  const found = files.filter(file => component === undefined || file.component === component)
  if (found.length === 0) {
    const what = component ?? 'server, client or router'
    throw new Failure(EXIT.runtime, `no ${what} of this user is running here; --admin URL asks another one`)
  }
  if (given !== undefined && found.some(file => file.writtenBy !== undefined)) {
    throw usageError('--admin.token.file needs --admin URL here: the address that was found belongs to another user')
  }
  return found.map(file => endpointOf(file, given))
}

/** `token` is used instead of the component's own. */
export function endpointOf(file: FoundFile, token?: string): Endpoint {
  return { url: file.url, component: file.component, token: () => token ?? ownToken(file) }
}

/** Prints the answers of the components that give one. Fails if one does not. */
export async function printAll<T>(asked: Promise<T>[], io: Io, print: (answers: T[]) => void): Promise<number> {
  const results = await Promise.allSettled(asked)
  const answers = results.flatMap(one => (one.status === 'fulfilled' ? [one.value] : []))
  const failures = results.flatMap(one => (one.status === 'rejected' ? [one.reason as Error] : []))
  if (answers.length > 0) print(answers)
  const last = failures.pop()
  for (const { message } of failures) io.note(`sallyport: ${message}`)
  if (last !== undefined) throw last
  return EXIT.ok
}

/** The server of `--admin`, or the only one on this machine. */
export function findServer(args: Arguments, io: Io): Endpoint {
  return findOne(args, io, 'server')
}

/** Like {@link findServer}, for a client. */
export function findClient(args: Arguments, io: Io): Endpoint {
  return findOne(args, io, 'client')
}

function findOne(args: Arguments, io: Io, component: 'server' | 'client'): Endpoint {
  const found = findEndpoints(args, io, component)
  if (found.length > 1) {
    const urls = found.map(({ url }) => url).join(', ')
    throw new Failure(EXIT.runtime, `several ${component}s are running here; choose one with --admin URL: ${urls}`)
  }
  return found[0]!
}

function parseUrl(text: string): string {
  const url = text.includes('://') ? text : `http://${text}`
  if (!URL.canParse(url) || !/^https?:$/.test(new URL(url).protocol)) {
    throw usageError(`--admin ${text}: expected a URL such as http://127.0.0.1:9090`)
  }
  return new URL(url).origin
}

function ownToken(file: FoundFile): string | undefined {
  try {
    return plainToken(readAdminToken(file))
  } catch (error) {
    if (error instanceof Failure) throw error
    const detail = (error as NodeJS.ErrnoException).code === undefined ? (error as Error).message : fileProblem(error)
    throw configurationError(`no token for ${file.url}: ${detail}; give --admin URL and --admin.token.file`, error)
  }
}

/** Checks the token. Anything that is not a token is neither sent nor shown. */
function plainToken(token: string | undefined): string | undefined {
  if (token === undefined || /^[!-~]{1,8192}$/.test(token)) return token
  throw configurationError('the admin token file has something else in it: expected one line without spaces')
}

/** Reads a view, such as `/status`. */
export async function view(endpoint: Endpoint, path: string, bounds?: Bounds): Promise<unknown> {
  return await ask(endpoint, path, {}, bounds)
}

/** Asks for an action. */
export async function requestAction(endpoint: Endpoint, path: string, body: object, bounds?: Bounds): Promise<unknown> {
  const headers = { 'content-type': 'application/json', 'x-sallyport-operator': operator() }
  return await ask(endpoint, path, { method: 'POST', headers, body: JSON.stringify(body) }, bounds)
}

/** Yields the data of each event, until the component ends. */
export async function follow(endpoint: Endpoint, path: string): Promise<AsyncIterable<unknown>> {
  const response = await answerOf(endpoint, path, {})
  return events(response.body!.pipeThrough(new TextDecoderStream()))
}

async function* events(texts: AsyncIterable<string>): AsyncGenerator<unknown> {
  let rest = ''
  try {
    for await (const text of texts) {
      const lines = (rest + text).split('\n')
      rest = lines.pop()!
      for (const line of lines) if (line.startsWith('data: ')) yield JSON.parse(line.slice(6))
    }
  } catch {
    // The connection has ended, as it does when the component does.
  }
}

/** Asks for an action. Each replica reports what it did. */
export async function askForAction(
  endpoint: Endpoint,
  path: string,
  body: object,
  bounds?: Partial<Bounds>,
): Promise<unknown> {
  const answer = await requestAction(endpoint, path, body, { ...BOUNDS, ...bounds })
  if (Array.isArray(asRow(answer).replicas)) return answer
  throw new Failure(EXIT.runtime, `${endpoint.url} did not report any action: it is not a server`)
}

/** Requests a code that opens the page once. */
export async function issueCode(endpoint: Endpoint): Promise<string> {
  const { code } = asRow(await ask(endpoint, '/ui/codes', { method: 'POST' }))
  if (typeof code === 'string' && /^[\w-]{22}$/.test(code)) return code
  throw new Failure(EXIT.runtime, `${endpoint.url} has no page: it is an older version`)
}

/**
 * Reports replicas that did not answer, so that a partial answer does not look complete. Returns the exit code of an action, which some
 * replicas may not have done.
 */
export function reportMissingReplicas(io: Io, answer: unknown): number {
  const { problems, replicas } = asRow(answer)
  const all = [
    ...(Array.isArray(problems) ? problems : []),
    ...asRows(replicas).flatMap(({ problem }) => problem ?? []),
  ]
  for (const problem of all) io.note(`not all replicas: ${printable(problem)}`)
  return all.length === 0 ? EXIT.ok : EXIT.runtime
}

/** The rows of a view, under `name`. Reports replicas that did not answer. */
export async function readRows(server: Endpoint, io: Io, path: string, name: string): Promise<readonly Row[]> {
  const answer = asRow(await view(server, path))
  reportMissingReplicas(io, answer)
  return asRows(answer[name])
}

/** The only row whose id begins with `start`. `what` names such a row in the error message. */
export function findById(rows: readonly Row[], start: string, what: string): Row {
  const [found, ...others] = rows.filter(({ id }) => beginsId(start, id))
  if (found === undefined) throw new Failure(EXIT.runtime, `there is no ${what} ${start}`)
  if (others.length > 0) throw usageError(`several ${what}s begin with ${start}`)
  return found
}

async function ask(
  endpoint: Endpoint,
  path: string,
  init: RequestInit,
  { deadlineMs, maxBytes }: Bounds = BOUNDS,
): Promise<unknown> {
  const response = await answerOf(endpoint, path, { ...init, signal: AbortSignal.timeout(deadlineMs) })
  return parseAnswer(endpoint.url, await textOf(response, maxBytes).catch(silent(endpoint.url)))
}

/** An answer of status 2xx, whose body is still to be read. */
async function answerOf({ url, token }: Endpoint, path: string, init: RequestInit): Promise<Response> {
  const given = token()
  const headers = { ...init.headers, ...(given !== undefined && { authorization: `Bearer ${given}` }) }
  const response = await fetch(`${url}${path}`, { ...init, headers, redirect: 'error' }).catch(silent(url))
  if (response.ok) return response
  if (response.status === 401 || response.status === 403) {
    const problem = given === undefined ? 'requires its admin token' : 'did not accept this admin token'
    throw configurationError(`${url} ${problem}: give --admin.token.file`)
  }
  if (response.status === 404) {
    const what = path.startsWith('/inspect') ? 'client that runs with --inspect' : 'server, or an older version'
    throw new Failure(EXIT.runtime, `${url} has no ${path}: it is not a ${what}`)
  }
  const text = await textOf(response, BOUNDS.maxBytes).catch(silent(url))
  throw new Failure(EXIT.runtime, `${url} answered ${response.status}: ${plainText(text.trim().slice(0, 200))}`)
}

function silent(url: string): (error: unknown) => never {
  return error => {
    const { cause, message } = error as Error & { cause?: NodeJS.ErrnoException }
    throw new Failure(EXIT.runtime, `${url} does not answer (${cause?.code ?? cause?.message ?? message})`)
  }
}

async function textOf(response: Response, maxBytes: number): Promise<string> {
  const chunks: Uint8Array[] = []
  let bytes = 0
  for await (const chunk of response.body ?? []) {
    bytes += chunk.length
    if (bytes > maxBytes) throw new Error(`its answer is over ${maxBytes} bytes`)
    chunks.push(chunk)
  }
  return Buffer.concat(chunks).toString('utf8')
}

function parseAnswer(url: string, text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    throw new Failure(EXIT.runtime, `${url} does not answer with JSON: it is not an admin listener of Sallyport`)
  }
}

/** The operator's name, for the audit log of the component. */
function operator(): string {
  let user = 'unknown'
  try {
    user = userInfo().username
  } catch {
    // In a container, the user may have no name.
  }
  return `${user}@${hostname()}`.replaceAll(/[^\x21-\x7e]/g, '?')
}
