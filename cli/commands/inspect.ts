import type { InspectedDetail, InspectedExchange, ReplayEdits } from '../../client/index.ts'
import { type Endpoint, findClient, follow, requestAction, view } from '../admin-client.ts'
import type { Arguments } from '../args.ts'
import type { Run } from '../command.ts'
import { EXIT, Failure, usageError } from '../failure.ts'
import { curlOf } from '../inspect/curl.ts'
import { harOf } from '../inspect/har.ts'
import { comparison, detailOf, lineOf } from '../inspect/text.ts'
import { hasSwitch, optionalFlag, parseHeader, readUtf8, requiredFlag } from '../options.ts'
import { writeOutput } from '../output-files.ts'
import { terminalJson } from '../plain-text.ts'
import { printResult } from '../print.ts'
import { asRow, asRows, printable } from '../table.ts'

/** A replay takes at most a minute. */
const REPLAY_BOUNDS = { deadlineMs: 70_000, maxBytes: 16_384 }

export const inspectTail: Run = async (args, io) => {
  const client = findClient(args, io)
  const show = (exchange: InspectedExchange) =>
    io.out(`${hasSwitch(args, 'json') ? terminalJson(exchange) : lineOf(exchange)}\n`)
  if (hasSwitch(args, 'no-follow')) {
    for (const exchange of await list(client)) show(exchange)
    return EXIT.ok
  }
  const listed = new Set<string>()
  const wordOf = ({ id, state }: InspectedExchange) => `${state} ${id}`
  // Open exchanges are shown when they end, except for WebSockets, which may stay open for long.
  const isEarly = ({ state, upgrade }: InspectedExchange) => state === 'open' && !upgrade
  const news = await follow(client, '/inspect/events')
  for (const exchange of await list(client)) {
    listed.add(wordOf(exchange))
    if (!isEarly(exchange)) show(exchange)
  }
  for await (const event of news) {
    const exchange = event as InspectedExchange
    if (!listed.delete(wordOf(exchange)) && !isEarly(exchange)) show(exchange)
  }
  throw new Failure(EXIT.runtime, `${client.url} has ended the stream of requests`)
}

export const inspectShow: Run = async (args, io) => {
  const exchange = await read(findClient(args, io), args.positionals[0]!)
  return printResult(args, io, exchange, () => detailOf(exchange))
}

export const inspectReplay: Run = async (args, io) => {
  const client = findClient(args, io)
  const id = args.positionals[0]!
  const first = await read(client, id)
  const edits = editsOf(args)
  const method = edits.method ?? first.method
  const unsafe = hasSwitch(args, 'yes')
  if (!unsafe && !['GET', 'HEAD', 'OPTIONS', 'TRACE'].includes(method)) {
    throw usageError(`${method} ${edits.path ?? first.path} may act on the target twice: --yes sends it again`)
  }
  const done = asRow(await requestAction(client, '/inspect/replay', { id, unsafe, edits }, REPLAY_BOUNDS))
  const replay = await find(client, String(done.id))
  if (replay === undefined) {
    const outcome = printable(done.code ?? done.status)
    throw new Failure(EXIT.runtime, `the replay ${printable(done.id)} has ended (${outcome}), but it is no longer kept`)
  }
  return printResult(args, io, { first, replay }, () => comparison(first, replay))
}

export const inspectHar: Run = async (args, io) => {
  const path = requiredFlag(args, 'out')
  const client = findClient(args, io)
  const found: InspectedDetail[] = []
  for (const { id } of await list(client)) {
    const exchange = await view(client, `/inspect/${id}`).catch(async error => {
      // It may have been dropped meanwhile to make room for another. Otherwise the file would lack it without a word.
      if ((await list(client)).some(kept => kept.id === id)) throw error
    })
    if (exchange !== undefined) found.push(exchange as InspectedDetail)
  }
  const text = `${JSON.stringify(harOf(found), undefined, 2)}\n`
  return writeOutput([{ path, text, secret: true }], args, io)
}

export const inspectCurl: Run = async (args, io) => {
  io.out(curlOf(await read(findClient(args, io), args.positionals[0]!)))
  return EXIT.ok
}

async function list(client: Endpoint): Promise<readonly InspectedExchange[]> {
  return asRows(asRow(await view(client, '/inspect')).list) as unknown as InspectedExchange[]
}

async function read(client: Endpoint, id: string): Promise<InspectedDetail> {
  const found = await find(client, id)
  if (found === undefined) throw new Failure(EXIT.runtime, `there is no exchange ${id}, or no longer`)
  return found
}

async function find(client: Endpoint, id: string): Promise<InspectedDetail | undefined> {
  const known = await list(client)
  if (!known.some(exchange => exchange.id === id)) return undefined
  return (await view(client, `/inspect/${id}`)) as InspectedDetail
}

function editsOf(args: Arguments): ReplayEdits {
  const headers = (args.flags.get('header') ?? []).map(parseHeader)
  const bodyFile = optionalFlag(args, 'body')
  return {
    method: optionalFlag(args, 'method'),
    path: optionalFlag(args, 'path'),
    ...(headers.length === 0 ? {} : { headers: Object.fromEntries(headers) }),
    ...(bodyFile === undefined ? {} : { body: readUtf8(bodyFile, 'the body') }),
  }
}
