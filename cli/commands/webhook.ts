/** `sallyport webhook send`: one delivery, signed as its sender would sign it. */
import { randomUUID } from 'node:crypto'
import { lookup } from 'node:dns'
import type { LookupFunction } from 'node:net'
import { Agent, request } from 'undici'
import { UNKNOWN_CA } from '../../client/dial/explain.ts'
import type { HeaderList } from '../../protocol/exchange.ts'
import { setHeader } from '../../protocol/http/headers.ts'
import { SCHEMES, type SchemeName, type WebhookScheme } from '../../protocol/webhook/scheme.ts'
import { readSecret } from '../../protocol/webhook/secret.ts'
import { createSigner } from '../../protocol/webhook/sign.ts'
import type { Arguments } from '../args.ts'
import type { Run } from '../command.ts'
import { EXIT, Failure, usageError } from '../failure.ts'
import { checked, optionalFlag, parseHeader, readInput, readInputBytes, readUrl, requiredFlag } from '../options.ts'
import { printResult } from '../print.ts'
import { printable } from '../table.ts'

/** Longer than any sender waits. */
const DEADLINE_MS = 60_000
const MAX_SHOWN_BYTES = 4096
const BODY = '{"message":"a test delivery of sallyport webhook send"}\n'

/** Fields that each sender sends besides the signature. */
const COMPANIONS: Record<SchemeName, (id: string) => HeaderList> = {
  github: id => ['user-agent', 'GitHub-Hookshot/sallyport', 'x-github-event', 'push', 'x-github-delivery', id],
  gitea: id => ['x-gitea-event', 'push', 'x-gitea-delivery', id],
  forgejo: id => ['x-forgejo-event', 'push', 'x-forgejo-delivery', id],
  bitbucket: id => ['x-event-key', 'repo:refs_changed', 'x-request-id', id],
  gitlab: id => ['x-gitlab-event', 'Push Hook', 'x-gitlab-event-uuid', id],
  'gitlab-signing': id => ['x-gitlab-event', 'Push Hook', 'x-gitlab-event-uuid', id],
  'standard-webhooks': () => [],
  slack: () => [],
  stripe: () => [],
  hmac: () => [],
  bearer: () => [],
}

export const webhookSend: Run = async (args, io) => {
  const url = readUrl(args.positionals[0]!)
  const scheme = await checked(() => schemeOption(args))
  const file = requiredFlag(args, 'secret-file')
  const secret = await checked(() => readSecret(scheme, readInputBytes(file, 'the secret')), file)
  const signer = await checked(() => createSigner(scheme, secret))
  const bodyFile = optionalFlag(args, 'body')
  const body = bodyFile === undefined ? Buffer.from(BODY) : readInputBytes(bodyFile, 'the body')
  const id = optionalFlag(args, 'id') ?? randomUUID()
  if (!/^[\w-]{1,128}$/.test(id)) throw usageError(`--id ${id}: expected letters, digits, "-" and "_"`)
  const headers: HeaderList = ['content-type', 'application/json', ...COMPANIONS[scheme.scheme](id)]
  const signing = { id, timestamp: Math.floor(Date.now() / 1000) }
  for (const [name, value] of pairs(signer.sign([body], signing))) setHeader(headers, name, value)
  for (const [name, value] of (args.flags.get('header') ?? []).map(parseHeader)) setHeader(headers, name, value)
  const answer = await send(url, headers, body, optionalFlag(args, 'ca'))
  printResult(args, io, { id, ...answer }, () => describe(answer))
  return answer.status >= 200 && answer.status < 300 ? EXIT.ok : EXIT.runtime
}

function schemeOption(args: Arguments): WebhookScheme {
  const name = optionalFlag(args, 'scheme') ?? 'github'
  if (!Object.hasOwn(SCHEMES, name)) {
    throw new TypeError(`--scheme ${name}: expected one of ${Object.keys(SCHEMES).join(', ')}`)
  }
  const encoding = optionalFlag(args, 'hmac.encoding')
  const hash = optionalFlag(args, 'hmac.hash')
  if (encoding !== undefined && encoding !== 'hex' && encoding !== 'base64') {
    throw new TypeError(`--hmac.encoding ${encoding}: expected hex or base64`)
  }
  if (hash !== undefined && hash !== 'sha256' && hash !== 'sha512') {
    throw new TypeError(`--hmac.hash ${hash}: expected sha256 or sha512`)
  }
  const [header, prefix] = [optionalFlag(args, 'hmac.header'), optionalFlag(args, 'hmac.prefix')]
  return { scheme: name as SchemeName, header, prefix, encoding, hash }
}

function* pairs(headers: HeaderList): Generator<[string, string]> {
  for (let i = 0; i < headers.length; i += 2) yield [headers[i]!, headers[i + 1]!]
}

interface Answer {
  readonly status: number
  readonly inboxId: string | undefined
  readonly error: string | undefined
  readonly tookMs: number
  readonly body: string
}

async function send(url: URL, headers: HeaderList, body: Buffer, caFile: string | undefined): Promise<Answer> {
  const ca = caFile === undefined ? undefined : readInput(caFile, 'the authorities')
  const dispatcher = new Agent({ connect: { lookup: lookUp, ...(ca !== undefined && { ca }) } })
  const startedMs = performance.now()
  try {
    const signal = AbortSignal.timeout(DEADLINE_MS)
    const response = await request(url, { dispatcher, method: 'POST', headers, body, signal })
    const field = (name: string) => [response.headers[name]].flat()[0]
    const text = await beginningOf(response.body)
    return {
      status: response.statusCode,
      inboxId: field('sallyport-inbox-id'),
      error: field('sallyport-error'),
      tookMs: Math.round(performance.now() - startedMs),
      body: text,
    }
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    if (code !== undefined && UNKNOWN_CA.has(code)) {
      throw new Failure(
        EXIT.runtime,
        `the certificate of ${url.origin} is not trusted here: give its authority with --ca FILE`,
      )
    }
    throw new Failure(EXIT.runtime, `${url.origin} does not answer (${code ?? message})`)
  } finally {
    await dispatcher.destroy()
  }
}

async function beginningOf(body: AsyncIterable<Buffer>): Promise<string> {
  const chunks: Buffer[] = []
  let bytes = 0
  for await (const chunk of body) {
    chunks.push(chunk)
    bytes += chunk.length
    if (bytes >= MAX_SHOWN_BYTES) break
  }
  return Buffer.concat(chunks).subarray(0, MAX_SHOWN_BYTES).toString()
}

/** Names under `.localhost` are this machine (RFC 6761), but few resolvers know that. */
const lookUp: LookupFunction = (name, options, done) => {
  lookup(/(^|\.)localhost\.?$/i.test(name) ? 'localhost' : name, options, done)
}

function describe({ status, inboxId, error, tookMs, body }: Answer): string {
  const kept = inboxId === undefined ? '' : `, stored in the inbox as ${printable(inboxId)}`
  const failed = error === undefined ? '' : `, ${printable(error)}`
  const text = body.trimEnd().split('\n').map(printable).join('\n')
  return `${status} in ${tookMs} ms${kept}${failed}\n${body === '' ? '' : `${text}\n`}`
}
