import { open } from 'node:fs/promises'

/** The text of a file that is at most `maxBytes` long, pipes and devices included; longer ones are an Error. */
export async function readBounded(file: string, maxBytes: number): Promise<string> {
  const handle = await open(file, 'r')
  try {
    const chunks: Buffer[] = []
    let length = 0
    for (;;) {
      const buffer = Buffer.alloc(Math.min(64 * 1024, maxBytes + 1 - length))
      const { bytesRead } = await handle.read(buffer, 0, buffer.length)
      if (bytesRead === 0) return Buffer.concat(chunks).toString('utf8')
      chunks.push(buffer.subarray(0, bytesRead))
      length += bytesRead
      if (length > maxBytes) throw new Error(`the file is over ${maxBytes} bytes`)
    }
  } finally {
    await handle.close()
  }
}
