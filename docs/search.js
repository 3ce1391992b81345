// What stands between the search box and the search's worker.
//
// The worker takes a leading dash for "without": a flag is looked for without its dashes, in titles above all, since
// each flag has a heading of its own. The worker finds "it" in "iterations": a question is looked for without its marks
// and its small words. And it counts a title a thousand times as much as text, with which most questions find a wrong
// page: ten times is enough.
const SMALL = new Set(
  ("a an and any anything are as at be by can do does for from get have how i in into is it its me my need of on or " +
    "should take than that the their them there they this to use used was we what when where which who why will with " +
    "you your").split(" "),
);
const FLAG = /^--\w|^[\w-]+[._][\w.-]+$/;
const plain = (asked) => {
  const words = asked.trim().split(/\s+/).map((word) => word.replace(/[?,;.!]+$/, ""));
  if (words.length === 1 && FLAG.test(words[0])) {
    const parts = words[0].split(/[-._=]+/).filter(Boolean);
    return parts.map((part) => `title:${part}^100 ${part}`).join(" ");
  }
  const telling = words.filter((word) => !SMALL.has(word.toLowerCase()));
  return (telling.length ? telling : words).map((word) => word.replace(/^--?(?=\w)/, "")).join(" ");
};
const post = Worker.prototype.postMessage;
Worker.prototype.postMessage = function (message, ...rest) {
  if (typeof message?.data === "string") return post.call(this, { ...message, data: plain(message.data) }, ...rest);
  if (message?.data?.config?.fields?.title) message.data.config.fields.title.boost = 10;
  return post.call(this, message, ...rest);
};
