/** The key file of a client's inbox: made at the first start, and never overwritten. */
import { createPrivateKey, type KeyObject, randomBytes } from 'node:crypto'
import {
  closeSync,
  constants,
  copyFileSync,
  existsSync,
  fsyncSync,
  linkSync,
  openSync,
  rmSync,
  writeSync,
} from 'node:fs'
import { dirname } from 'node:path'
import { readPlainSync } from '../../protocol/base/plain-file.ts'
import { newPrivateKey } from '../../protocol/sealing/hpke.ts'
import { configurationError, fileProblem } from '../failure.ts'

const BLOCK = /-----BEGIN PRIVATE KEY-----[^-]+-----END PRIVATE KEY-----/g

/** The keys of the file, PEM: the first seals, the others still open what they were used for. Makes the file if there is none. */
export function loadInboxKeys(path: string): readonly string[] {
  try {
    return read(path)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw explained(path, error)
  }
  try {
    make(path)
  } catch (error) {
    // Another client may have made it in this moment.
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw explained(path, error)
  }
  return read(path)
}

/** Throws for a file with which a client would not start, and makes none. */
export function checkInboxKeys(path: string): void {
  try {
    read(path)
  } catch (error) {
    const isNew = (error as NodeJS.ErrnoException).code === 'ENOENT' && existsSync(dirname(path))
    if (!isNew) throw explained(path, error)
  }
}

/** Under a name of its own until it is whole: nobody reads half of it, and a full disk leaves none behind. */
function make(path: string): void {
  const fresh = `${path}.${randomBytes(6).toString('hex')}`
  try {
    const file = openSync(fresh, 'wx', 0o600)
    try {
      writeSync(file, newPrivateKey().export({ format: 'pem', type: 'pkcs8' }))
      fsyncSync(file)
    } finally {
      closeSync(file)
    }
    putInPlace(fresh, path)
  } finally {
    rmSync(fresh, { force: true })
  }
}

/** Never over a file that is there. */
function putInPlace(fresh: string, path: string): void {
  try {
    linkSync(fresh, path)
  } catch (error) {
    // Some file systems have no links.
    if (!['EPERM', 'ENOTSUP', 'ENOSYS'].includes((error as NodeJS.ErrnoException).code!)) throw error
    copyFileSync(fresh, path, constants.COPYFILE_EXCL)
  }
}

function read(path: string): readonly string[] {
  const text = String(readPlainSync(path))
  const blocks = text.match(BLOCK) ?? []
  if (blocks.length === 0) throw configurationError(`--inbox.key.file ${path} holds no private key (PEM)`)
  // Passed over, another key would seal, and nobody could open what was sealed for this one.
  if (/PRIVATE KEY/.test(text.replace(BLOCK, ''))) {
    throw configurationError(`--inbox.key.file ${path} holds a private key that is cut, encrypted or not PEM (PKCS #8)`)
  }
  for (const block of blocks) checkKey(path, block)
  return blocks
}

function checkKey(path: string, block: string): void {
  let key: KeyObject
  try {
    key = createPrivateKey(block)
  } catch (error) {
    throw configurationError(`--inbox.key.file ${path} holds a key that cannot be read`, error)
  }
  if (key.asymmetricKeyType !== 'x25519') {
    throw configurationError(`--inbox.key.file ${path}: ${key.asymmetricKeyType} is no X25519 key`)
  }
}

function explained(path: string, error: unknown): unknown {
  const { code } = error as NodeJS.ErrnoException
  return code === undefined ? error : configurationError(`--inbox.key.file ${path}: ${fileProblem(error)}`, error)
}
