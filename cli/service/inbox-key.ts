/** The inbox key file of a client. It is created at the first start and never overwritten. */
import { createPrivateKey, type KeyObject, randomBytes } from 'node:crypto'
import {
  accessSync,
  closeSync,
  constants,
  copyFileSync,
  fsyncSync,
  linkSync,
  lstatSync,
  openSync,
  rmSync,
  writeSync,
} from 'node:fs'
import { dirname } from 'node:path'
import { makeDurableSync } from '../../protocol/base/durable.ts'
import { readPlainSync } from '../../protocol/base/plain-file.ts'
import { newPrivateKey } from '../../protocol/sealing/hpke.ts'
import { configurationError, fileProblem } from '../failure.ts'

const BLOCK = /-----BEGIN PRIVATE KEY-----[^-]+-----END PRIVATE KEY-----/g

/** Reads the keys of the file (PEM). Webhooks are sealed for the first; the others still open older ones. Creates the file if it does not exist. */
export function loadInboxKeys(path: string): readonly string[] {
  return explained(path, () => {
    if (isNew(path)) make(path)
    // Also if another client has created it: what a server seals for this key must find it after a power cut.
    makeDurableSync(dirname(path))
    return read(path)
  })
}

/** Throws for a file that would prevent a client from starting. Does not create one. */
export function checkInboxKeys(path: string): void {
  explained(path, () => {
    if (isNew(path)) accessSync(dirname(path), constants.W_OK)
    else read(path)
  })
}

/** False for a symbolic link, even if it leads nowhere, since it is never replaced. */
function isNew(path: string): boolean {
  return lstatSync(path, { throwIfNoEntry: false }) === undefined
}

/** Writes under a temporary name, so that nobody reads half a file, and a full disk leaves none behind. */
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
  } catch (error) {
    // Another client may have created it just now.
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
  } finally {
    rmSync(fresh, { force: true })
  }
}

/** Never replaces an existing file. */
function putInPlace(fresh: string, path: string): void {
  try {
    linkSync(fresh, path)
  } catch (error) {
    // Some file systems have no hard links.
    if (!['EPERM', 'ENOTSUP', 'ENOSYS'].includes((error as NodeJS.ErrnoException).code!)) throw error
    copyFileSync(fresh, path, constants.COPYFILE_EXCL)
    makeDurableSync(path)
  }
}

function read(path: string): readonly string[] {
  const text = String(readPlainSync(path))
  const blocks = text.match(BLOCK) ?? []
  if (blocks.length === 0) throw configurationError(`--inbox.key.file ${path} has no private key (PEM)`)
  // If it were skipped, webhooks would be sealed for another key, and nobody could open those sealed for this one.
  if (/PRIVATE KEY/.test(text.replace(BLOCK, ''))) {
    throw configurationError(`--inbox.key.file ${path} has a private key that is cut, encrypted or not PEM (PKCS #8)`)
  }
  for (const block of blocks) checkKey(path, block)
  return blocks
}

function checkKey(path: string, block: string): void {
  let key: KeyObject
  try {
    key = createPrivateKey(block)
  } catch (error) {
    throw configurationError(`--inbox.key.file ${path} has a key that cannot be read`, error)
  }
  if (key.asymmetricKeyType !== 'x25519') {
    throw configurationError(`--inbox.key.file ${path}: ${key.asymmetricKeyType} is not an X25519 key`)
  }
}

function explained<Result>(path: string, work: () => Result): Result {
  try {
    return work()
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === undefined) throw error
    throw configurationError(`--inbox.key.file ${path}: ${fileProblem(error)}`, error)
  }
}
