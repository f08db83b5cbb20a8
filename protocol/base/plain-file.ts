/**
 * Reads files while we serve. A path may lead to a pipe that nobody writes to, an endless device, or a mount that has stopped
 * answering. None of them may hold up the process, so only plain files are read, up to a size and within a time limit. A call
 * that never returns occupies one of the four threads of Node's pool. So only a few calls run at once, and only one per folder,
 * since a folder is usually on one mount.
 */
import { closeSync, constants, fstatSync, openSync, readSync, type Stats } from 'node:fs'
import { type FileHandle, open } from 'node:fs/promises'
import { dirname } from 'node:path'
import { detached, guardWith } from './guard.ts'
import { noLogger } from './log.ts'

/** Larger than any certificate, key or password. */
const MAX_BYTES = 1024 * 1024
const CHUNK_BYTES = 64 * 1024
/** How long a file may take, including the wait for others. Counts only seconds during which this process ran. */
const PATIENCE_S = 10
/** Most folders with a call in progress, since resolvers and ciphers need threads, too. */
const MAX_FOLDERS = 2

/** With O_NONBLOCK, opening a pipe does not wait for its writer. Windows has no such flag. */
const FLAGS = constants.O_RDONLY | (constants.O_NONBLOCK ?? 0)

/** Reads a plain file. Rejects if it is not one, is longer than `maxBytes` (default 1 MiB), or is not read within 10 s. */
export function readPlain(file: string, maxBytes: number = MAX_BYTES): Promise<Buffer> {
  return inTurn(file, async () => {
    const handle = await open(file, FLAGS)
    try {
      demandPlain(await handle.stat())
      return await readAll(handle, maxBytes)
    } finally {
      await handle.close()
    }
  })
}

/** The same, synchronously, for callers that cannot wait. It has no time limit. */
export function readPlainSync(file: string, maxBytes: number = MAX_BYTES): Buffer {
  const descriptor = openSync(file, FLAGS)
  try {
    demandPlain(fstatSync(descriptor))
    const text = Buffer.alloc(maxBytes + 1)
    let length = 0
    for (;;) {
      const bytes = readSync(descriptor, text, length, text.length - length, null)
      length += bytes
      if (length > maxBytes) throw tooLong(maxBytes)
      if (bytes === 0) return Buffer.from(text.subarray(0, length))
    }
  } finally {
    closeSync(descriptor)
  }
}

/** A mark that changes whenever the file does, without reading it, or the reason why it cannot be opened. */
export function markOf(file: string): Promise<string> {
  const mark = inTurn(file, async () => {
    const handle = await open(file, FLAGS)
    try {
      // Unlike the modification time, nobody can set the change time.
      const { ino, ctimeNs, size } = await handle.stat({ bigint: true })
      return `${ino} ${ctimeNs} ${size}`
    } finally {
      await handle.close()
    }
  })
  return mark.catch((error: NodeJS.ErrnoException) => String(error.code))
}

async function readAll(handle: FileHandle, maxBytes: number): Promise<Buffer> {
  const chunks: Buffer[] = []
  let length = 0
  for (;;) {
    const chunk = Buffer.alloc(Math.min(CHUNK_BYTES, maxBytes + 1 - length))
    const { bytesRead } = await handle.read(chunk, 0, chunk.length)
    if (bytesRead === 0) return Buffer.concat(chunks)
    chunks.push(chunk.subarray(0, bytesRead))
    length += bytesRead
    if (length > maxBytes) throw tooLong(maxBytes)
  }
}

function demandPlain(stat: Stats): void {
  if (stat.isDirectory()) throw problem('EISDIR', 'it is a directory')
  if (!stat.isFile()) throw problem('EFTYPE', 'it is not a plain file')
}

function tooLong(maxBytes: number): Error {
  return problem('EFBIG', `the file is over ${maxBytes} bytes`)
}

function problem(code: string, message: string): Error {
  return Object.assign(new Error(message), { code })
}

interface Turn {
  readonly folder: string
  readonly begin: () => void
}

const busy = new Set<string>()
const waiting = new Set<Turn>()

/**
 * Runs `work`, which accesses `file`, when it is its turn. Rejects after 10 s; work that has begun by then may still complete.
 */
export function inTurn<T>(file: string, work: () => Promise<T>): Promise<T> {
  const folder = dirname(file)
  const { promise, resolve, reject } = Promise.withResolvers<T>()
  const begin = async () => {
    try {
      resolve(await work())
    } catch (error) {
      reject(error)
    } finally {
      busy.delete(folder)
      beginNext()
    }
  }
  const turn = { folder, begin: () => detached(noLogger, '', begin()) }
  const guard = guardWith(reject)
  let leftS = PATIENCE_S
  const second = guard(() => {
    if (--leftS > 0) return
    waiting.delete(turn)
    reject(problem('ETIMEDOUT', `the file system has not answered in ${PATIENCE_S} s`))
  })
  const timer = setInterval(second, 1000).unref()
  waiting.add(turn)
  beginNext()
  return promise.finally(() => clearInterval(timer))
}

function beginNext(): void {
  for (const turn of waiting) {
    if (busy.size >= MAX_FOLDERS) return
    if (busy.has(turn.folder)) continue
    waiting.delete(turn)
    busy.add(turn.folder)
    turn.begin()
  }
}
