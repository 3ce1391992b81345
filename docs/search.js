// The search takes a word's leading dash for "without": a flag is looked for without its dashes.
const post = Worker.prototype.postMessage;
Worker.prototype.postMessage = function (message, ...rest) {
  const asked = typeof message?.data === "string" && message.data.replace(/(^|\s)--?(?=\w)/g, "$1");
  return post.call(this, asked ? { ...message, data: asked } : message, ...rest);
};
