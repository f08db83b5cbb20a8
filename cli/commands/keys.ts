import { existsSync, realpathSync } from 'node:fs'
import { readFile, rm } from 'node:fs/promises'
import { join } from 'node:path'
import type { JWK } from 'jose'
import { createKeys, type TokenAlgorithm } from '../../certs/keys.ts'
import { parseKeySet } from '../../server/auth/key-source.ts'
import type { Arguments } from '../args.ts'
import type { Io, Run } from '../command.ts'
import { configurationError, EXIT, usageError } from '../failure.ts'
import { beginsId, checked, optionalFlag, readInput, requiredFlag } from '../options.ts'
import { changeOutput, isSameFile, type Rewrite, writeOutput } from '../output-files.ts'
import { printResult } from '../print.ts'
import { type Columns, printable, tableText } from '../table.ts'

export const keysCreate: Run = async (args, io) => {
  const out = requiredFlag(args, 'out')
  const { privateJwk, jwks } = await checked(() => createKeys({ alg: algorithm(args) }))
  const files = [
    { path: join(out, 'private.jwk'), text: `${JSON.stringify(privateJwk)}\n`, secret: true },
    { path: join(out, 'jwks.json'), text: textOf(jwks), secret: false },
  ]
  return writeOutput(files, args, io)
}

export const keysAdd: Run = async (args, io) => {
  const path = requiredFlag(args, 'jwks')
  const out = requiredFlag(args, 'out')
  if (isSameFile(out, path)) throw usageError(`${out} is the key set: give another --out`)
  return changeSet(path, io, async (set, rewrite) => {
    if (isSameFile(out, `${realpathSync(path)}.next`)) throw usageError(`${out} locks the key set: give another --out`)
    const { privateJwk, jwks } = await checked(() => createKeys({ alg: algorithm(args) }))
    const text = textOf({ ...set, keys: [...set.keys, ...jwks.keys] })
    await checked(() => parseKeySet(text), path)
    const isNew = !existsSync(out)
    // The private key first: a public key is useless if nobody can sign with its private half.
    await writeOutput([{ path: out, text: `${JSON.stringify(privateJwk)}\n`, secret: true }], args, io)
    try {
      await rewrite([{ path, text, secret: false }])
    } catch (error) {
      const isWritten = (await readFile(path, 'utf8').catch(() => undefined)) === text
      if (isNew && !isWritten) await rm(out, { force: true }).catch(() => {})
      throw error
    }
    io.note(`added ${privateJwk.kid}; sign with it once every server has read the key set`)
    return EXIT.ok
  })
}

export const keysList: Run = async (args, io) => {
  const { keys } = await readSet(requiredFlag(args, 'jwks'))
  return printResult(args, io, keys, () => tableText(keys as never, COLUMNS, 'no keys'))
}

const COLUMNS: Columns = {
  kid: ({ kid }) => printable(kid),
  alg: ({ alg }) => printable(alg),
  type: ({ kty, crv }) => printable(crv ?? kty),
}

export const keysRetire: Run = async (args, io) => {
  const path = requiredFlag(args, 'jwks')
  const start = requiredFlag(args, 'kid')
  return changeSet(path, io, async (set, rewrite) => {
    const [found, ...others] = set.keys.filter(({ kid }) => beginsId(start, kid))
    if (found === undefined) throw configurationError(`${path} has no key ${start}`)
    if (others.length > 0) throw usageError(`several keys begin with ${start}`)
    const keys = set.keys.filter(key => key !== found)
    const text = textOf({ ...set, keys })
    await parseKeySet(text).catch((error: unknown) => {
      throw configurationError(`${found.kid} is the last key of ${path}: without it, no token would be valid`, error)
    })
    await rewrite([{ path, text, secret: false }])
    io.note(
      `retired ${printable(found.kid)}; its tokens are refused from now on; live sessions last until their tokens expire`,
    )
    return EXIT.ok
  })
}

function algorithm(args: Arguments): TokenAlgorithm {
  return (optionalFlag(args, 'alg') ?? 'EdDSA') as TokenAlgorithm
}

/** A set as servers read it; whatever else stands in it is kept. */
async function readSet(path: string): Promise<{ readonly keys: readonly JWK[] }> {
  const text = readInput(path, 'the key set')
  try {
    await parseKeySet(text)
    return JSON.parse(text) as { keys: JWK[] }
  } catch (error) {
    throw configurationError(`${path}: ${(error as Error).message}`, error)
  }
}

/** Runs `work` while no other command changes the key set. */
async function changeSet<Result>(
  path: string,
  io: Io,
  work: (set: Awaited<ReturnType<typeof readSet>>, rewrite: Rewrite) => Promise<Result>,
): Promise<Result> {
  await readSet(path)
  return changeOutput(path, io, async rewrite => work(await readSet(path), rewrite))
}

function textOf(set: object): string {
  return `${JSON.stringify(set, undefined, 2)}\n`
}
