import { mkdirSync, mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll } from 'vitest'
import { createKeys, createToken, type TokenKeys, type TokenOptions } from '../../certs/index.ts'
import type { KeptSockets } from '../support/kept-sockets.ts'
import { Running } from './process.ts'
import { sallyport } from './run.ts'

/** What a file of tests types on: a folder with certificates and keys, and processes that end with each test. */
export interface Machine {
  readonly keys: TokenKeys
  readonly environment: { readonly RUNTIME_DIRECTORY: string }
  file(name: string): string
  start(args: readonly string[], environment?: Record<string, string>, kept?: KeptSockets): Running
  serverArgs(...more: string[]): string[]
  /** Replaces the file `name` in one step, as a token's timer does. */
  writeToken(name: string, token: Omit<TokenOptions, 'key'>): Promise<string>
  /** Ends all processes at once. */
  end(): Promise<void>
}

export const ADMIN = ['--admin.listen', '127.0.0.1:0']

/** For the top of a file of tests. The folder exists from `beforeAll` on. */
export function useMachine(): Machine {
  let folder = ''
  let keys: TokenKeys
  const running: Running[] = []
  const file = (name: string) => join(folder, name)
  const end = async () => {
    for (const process of running.splice(0)) await process.end('SIGKILL')
  }
  beforeAll(async () => {
    folder = mkdtempSync(join(tmpdir(), 'sallyport-machine-'))
    mkdirSync(file('run'), { mode: 0o700 })
    await sallyport(['certs', 'init', '--out', folder, '--host', '127.0.0.1'])
    keys = await createKeys()
    writeFileSync(file('jwks.json'), JSON.stringify(keys.jwks))
  })
  afterEach(end)
  afterAll(() => rmSync(folder, { recursive: true }))
  return {
    get keys() {
      return keys
    },
    get environment() {
      return { RUNTIME_DIRECTORY: file('run') }
    },
    file,
    start: (args, environment = {}, kept) => {
      const process = new Running(args, { RUNTIME_DIRECTORY: file('run'), ...environment }, undefined, kept)
      running.push(process)
      return process
    },
    serverArgs: (...more) => [
      'server',
      ...['--public.listen', '127.0.0.1:0', '--control.listen', '127.0.0.1:0', '--domain', 'tunnels.localhost'],
      ...['--control.tls.cert', file('server.pem'), '--control.tls.key', file('server-key.pem')],
      ...['--auth.jwks.file', file('jwks.json'), ...(more.includes('--admin.listen') ? [] : ADMIN), ...more],
    ],
    writeToken: async (name, given) => {
      const { token } = await createToken({ key: keys.privateJwk, ...given })
      writeFileSync(file(`${name}.new`), `${token}\n`, { mode: 0o600 })
      renameSync(file(`${name}.new`), file(name))
      return token
    },
    end,
  }
}
