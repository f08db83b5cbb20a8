import { askForAction, type Endpoint, findServer, readRows, reportMissingReplicas } from '../admin-client.ts'
import type { Arguments } from '../args.ts'
import type { Io, Run } from '../command.ts'
import { EXIT, Failure, usageError } from '../failure.ts'
import { optionalCount, optionalFlag, requiredFlag } from '../options.ts'
import { terminalJson } from '../plain-text.ts'
import { printResult } from '../print.ts'
import {
  ago,
  asRow,
  asRows,
  type Columns,
  count,
  facts,
  printable,
  type Row,
  remainingTime,
  shortId,
  size,
  tableText,
} from '../table.ts'
import { readTimeS } from '../time.ts'

/** How many are listed at a time for an export. */
const EXPORT_PAGE = 1000
/** A server that changes tens of thousands of webhooks may take minutes on a slow disk. `fetch` waits 5 minutes at most. */
const CHANGE_BOUNDS = { deadlineMs: 240_000 }

export const inboxList: Run = async (args, io) => {
  const messages = await read(findServer(args, io), io, '/inbox', filterOf(args))
  return printResult(args, io, messages, () => tableText(messages, columns(Date.now()), 'no webhooks'))
}

export const inboxShow: Run = async (args, io) => {
  const { body, head, sealedHead, ...message } = await readOne(args, io)
  return printResult(args, io, { ...message, head, sealedHead, body }, () => {
    const known = facts(Object.entries(message).map(([name, value]) => [name, printable(value)]))
    return head === undefined ? known : `${known}\n${describeHead(asRow(head))}`
  })
}

function describeHead({ method, path, headers }: Row): string {
  let text = `${printable(method)} ${printable(path)}\n`
  const fields = Array.isArray(headers) ? headers : []
  for (let i = 0; i < fields.length; i += 2) text += `${printable(fields[i])}: ${printable(fields[i + 1])}\n`
  return text
}

export const inboxExport: Run = async (args, given) => {
  const server = findServer(args, given)
  let isWhole = true
  const note = (text: string) => {
    isWhole = false
    given.note(text)
  }
  const io = { ...given, note }
  let withoutBody = 0
  for await (const id of idsOf(args, io, server)) {
    const [message] = await read(server, io, '/inbox/message', { id })
    if (message === undefined) continue
    // Delivered webhooks are listed without head and body.
    const isKept = message.body !== undefined || message.state === 'delivered'
    const storedParts = isKept ? undefined : await partsOf(message, io, server)
    io.out(`${terminalJson({ ...message, storedParts })}\n`)
    if (!isKept && storedParts === undefined) withoutBody++
  }
  if (withoutBody > 0) {
    throw new Failure(
      EXIT.runtime,
      `${withoutBody} of them have no body: they were delivered meanwhile, or are damaged`,
    )
  }
  if (!isWhole) throw new Failure(EXIT.runtime, 'not all replicas have answered: some webhooks may be missing')
  return EXIT.ok
}

/** Head and body as stored, in base64. Undefined if a part is missing. */
async function partsOf({ id, parts }: Row, io: Io, server: Endpoint): Promise<string[] | undefined> {
  const found: string[] = []
  for (let n = 0; n < Number(parts); n++) {
    const [row] = await read(server, io, '/inbox/part', { id: String(id), part: String(n) })
    if (row === undefined) return undefined
    found.push(String(row.part))
  }
  return found
}

/** The ids of all webhooks that match, or of as many as `--limit` allows, page by page. */
async function* idsOf(args: Arguments, io: Io, server: Endpoint): AsyncGenerator<string> {
  const { limit, ...filter } = filterOf(args)
  const most = Number(limit ?? Number.POSITIVE_INFINITY)
  const seen = new Set<string>()
  /** The oldest id of each replica so far. */
  const oldest = new Map<unknown, string>()
  // If the last webhook of a page was dropped meanwhile, listing starts over. Those already seen are skipped, and the rest follows.
  for (let before = '', last: string | undefined; before !== last; ) {
    const page = { ...filter, ...(before === '' ? {} : { before }), limit: String(EXPORT_PAGE) }
    for (const row of await read(server, io, '/inbox', page)) {
      const id = String(row.id)
      oldest.set(row.replica, id)
      if (seen.has(id)) continue
      if (seen.size >= most) return
      seen.add(id)
      yield id
    }
    last = before
    before = [...oldest.values()].join(',')
  }
}

export const inboxReplay: Run = async (args, io) =>
  await change(args, io, '/inbox/replay', 'waits again', 'no such webhook is waiting or dead')

export const inboxDrop: Run = async (args, io) =>
  await change(args, io, '/inbox/drop', 'dropped', 'there is no such webhook')

export const inboxPause: Run = async (args, io) => await pause(args, io, '/inbox/pause')

export const inboxResume: Run = async (args, io) => await pause(args, io, '/inbox/resume')

const columns = (now: number): Columns => ({
  id: row => shortId(row.id),
  runtime: row => printable(row.runtime),
  route: row => printable(row.route),
  lane: row => printable(row.lane).slice(0, 8),
  state: row => printable(row.state),
  age: row => ago(row.received, now),
  size: row => size(row.bytes),
  attempts: row => count(row.attempts),
  next: row => (row.state === 'waiting' && row.attempts !== 0 ? remainingTime(row.next, now) : undefined),
  stored: row => printable(row.why),
  sealed: row => (row.key === '' ? 'no' : 'yes'),
  reason: row => printable(row.reason),
  replica: row => printable(row.replica),
})

function filterOf(args: Arguments): Record<string, string> {
  const since = optionalFlag(args, 'since')
  const given = {
    ...{ runtime: optionalFlag(args, 'runtime'), lane: optionalFlag(args, 'lane'), state: optionalFlag(args, 'state') },
    since: since === undefined ? undefined : String(Math.round(readTimeS('--since', since) * 1000)),
    limit: optionalCount(args, 'limit')?.toString(),
  }
  return Object.fromEntries(Object.entries(given).filter((pair): pair is [string, string] => pair[1] !== undefined))
}

function read(server: Endpoint, io: Io, path: string, query: Record<string, string>): Promise<readonly Row[]> {
  return readRows(server, io, `${path}?${new URLSearchParams(query)}`, 'messages')
}

async function readOne(args: Arguments, io: Io): Promise<Row> {
  const id = args.positionals[0]!
  const [message] = await read(findServer(args, io), io, '/inbox/message', { id })
  if (message === undefined) throw new Failure(EXIT.runtime, `there is no webhook ${id}`)
  return message
}

/** Changes one webhook by its id, or all that match the flags. */
async function change(args: Arguments, io: Io, path: string, result: string, none: string): Promise<number> {
  const server = findServer(args, io)
  const [id] = args.positionals
  const filter = filterOf(args)
  if (id === undefined && filter.runtime === undefined) throw usageError('give an ID, or --runtime NAME')
  const chosen = { ...filter, ...(id === undefined ? {} : { id }) }
  const answer = asRow(await askForAction(server, path, chosen, CHANGE_BOUNDS))
  const code = reportMissingReplicas(io, answer)
  const done = asRows(answer.replicas).flatMap(({ messages }) => (Array.isArray(messages) ? messages : []))
  if (done.length === 0) throw new Failure(EXIT.runtime, none)
  return printResult(
    args,
    io,
    answer,
    () => done.map(message => `webhook ${printable(message)}: ${result}\n`).join(''),
    code,
  )
}

async function pause(args: Arguments, io: Io, path: string): Promise<number> {
  const runtime = requiredFlag(args, 'runtime')
  const answer = asRow(await askForAction(findServer(args, io), path, { runtime }))
  const code = reportMissingReplicas(io, answer)
  const done = asRows(answer.replicas).filter(row => row.paused !== undefined)
  if (done.length === 0) throw new Failure(EXIT.runtime, 'no server with an inbox answered')
  const describe = ({ replica, paused }: Row) =>
    `${printable(runtime)} on replica ${printable(replica)}: ${paused === true ? 'paused' : 'resumed'}\n`
  return printResult(args, io, answer, () => done.map(describe).join(''), code)
}
