/** Who is load-tested, and what answers there. */
import { readFileSync } from 'node:fs'
import { request as httpRequest, type IncomingMessage } from 'node:http'
import { request as httpsRequest } from 'node:https'
import { messageOf } from '../../protocol/base/errors.ts'
import type { Place } from '../lib/load.ts'
import { MARK, PATHS } from '../upstream/service.ts'

export interface LoadTarget extends Place {
  readonly key: 'tunnel' | 'direct'
  readonly name: string
  /** The URL as it was given. */
  readonly given: string
}

/** What one request found there. */
export interface Found {
  readonly status: number
  readonly body: Buffer
  /** Whether `sallyport load-test --serve` is behind it. */
  readonly isOurService: boolean
}

const DEADLINE_MS = 10_000
const MAX_BODY_BYTES = 1024 * 1024

/** The URL that the paths of the service are relative to, without a trailing slash. */
export const base = ({ url }: Pick<Place, 'url'>): string => url.replace(/\/+$/, '')

export function under(target: LoadTarget, path: string): LoadTarget {
  return { ...target, url: base(target) + path, given: base({ url: target.given }) + path }
}

/** Sends one GET. Rejects with a readable message if there is no whole answer in time. */
export async function look(target: LoadTarget, stopping: AbortSignal): Promise<Found> {
  const late = AbortSignal.timeout(DEADLINE_MS)
  try {
    return await answerOf(target, AbortSignal.any([stopping, late]))
  } catch (error) {
    const why = late.aborted ? `no whole answer within ${DEADLINE_MS / 1000} s` : messageOf(error)
    throw new Error(`${target.given} does not answer: ${why}`)
  }
}

async function answerOf(target: LoadTarget, signal: AbortSignal): Promise<Found> {
  const response = await get(target, signal)
  const chunks: Buffer[] = []
  let bytes = 0
  for await (const chunk of response as AsyncIterable<Buffer>) {
    bytes += chunk.length
    if (bytes > MAX_BODY_BYTES) break
    chunks.push(chunk)
  }
  return {
    status: response.statusCode ?? 0,
    body: Buffer.concat(chunks),
    isOurService: response.headers[MARK[0]] === MARK[1],
  }
}

/** Whether our service is behind the target. */
export async function hasOurService(target: LoadTarget, stopping: AbortSignal): Promise<boolean> {
  const { status, isOurService } = await look(under(target, PATHS.small), stopping)
  return status === 200 && isOurService
}

function get(target: LoadTarget, signal: AbortSignal): Promise<IncomingMessage> {
  const url = new URL(target.url)
  const isTls = url.protocol === 'https:'
  return new Promise((resolve, reject) => {
    const request = (isTls ? httpsRequest : httpRequest)(
      url,
      {
        headers: target.headers,
        agent: false,
        signal,
        ...(isTls ? { servername: serverName(target, url) } : {}),
        ...(target.ca === undefined ? {} : { ca: readFileSync(target.ca) }),
      },
      resolve,
    )
    request.on('error', reject)
    request.end()
  })
}

function serverName(target: LoadTarget, url: URL): string {
  const name = (target.headers.host ?? url.host).replace(/:\d+$/, '')
  return /^[\d.]+$|:/.test(name) ? '' : name
}
